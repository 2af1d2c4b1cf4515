"""An nvidia-smi of our own that prints recorded text, and the text: two GPUs of invented names."""

import json
import os
import sys
from pathlib import Path

UUIDS = ("GPU-3f0c1b2a-9d8e-4c7b-8a6f-0123456789ab", "GPU-77aa88bb-1122-4334-9556-fedcba987654")
SERIALS = ("0321987654321", "0321987654322")
PDI = "0xa1b2c3d4e5f60718"
CLUSTER = "12ab34cd-56ef-4789-8abc-def012345678"
MIG = "MIG-0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f9"
PROCESS = "/home/mallory/train &amp; serve.py"

_GPU = """	<gpu id="{address}">
		<product_name>NVIDIA H200</product_name>
		<product_brand>NVIDIA</product_brand>
		<product_architecture>Hopper</product_architecture>
		<persistence_mode>Enabled</persistence_mode>
		<mig_mode>
			<current_mig>Disabled</current_mig>
			<pending_mig>Disabled</pending_mig>
		</mig_mode>
		<serial>{serial}</serial>
		<uuid>{uuid}</uuid>
		<pdi>{pdi}</pdi>
		<minor_number>{number}</minor_number>
		<vbios_version>96.00.B7.00.01</vbios_version>
		<platformInfo>
			<chassis_serial_number>N/A</chassis_serial_number>
		</platformInfo>
		<pci>
			<pci_bus_id>{address}</pci_bus_id>
		</pci>
		<fabric>
			<state>Completed</state>
			<clusterUuid>{cluster}</clusterUuid>
		</fabric>
		<gpu_power_readings>
			<current_power_limit>700.00 W</current_power_limit>
		</gpu_power_readings>
		<processes>
			<process_info>
				<pid>4242</pid>
				<process_name>{process}</process_name>
			</process_info>
		</processes>
	</gpu>
"""
ADDRESSES = ("00000000:1B:00.0", "00000000:43:00.0")


def xml() -> str:
    """Return what `nvidia-smi -q -x` prints."""
    gpus = "".join(
        _GPU.format(
            address=ADDRESSES[number],
            serial=SERIALS[number],
            uuid=UUIDS[number],
            pdi=PDI,
            number=number,
            cluster=CLUSTER if number == 0 else "00000000-0000-0000-0000-000000000000",
            process=PROCESS,
        )
        for number in (0, 1)
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "	<timestamp>Mon Jun  1 10:00:00 2026</timestamp>\n	<driver_version>570.86.15</driver_version>\n"
        f"	<cuda_version>12.8</cuda_version>\n	<attached_gpus>2</attached_gpus>\n{gpus}</nvidia_smi_log>\n"
    )


def query() -> str:
    """Return the start of what `nvidia-smi -q` prints of one GPU."""
    lines = (
        "==============NVSMI LOG==============",
        "",
        "Driver Version                            : 570.86.15",
        "CUDA Version                              : 12.8",
        "",
        "Attached GPUs                             : 1",
        f"GPU {ADDRESSES[0]}",
        "    Product Name                          : NVIDIA H200",
        f"    Serial Number                         : {SERIALS[0]}",
        f"    GPU UUID                              : {UUIDS[0]}",
        f"    GPU PDI                               : {PDI}",
        "    Fabric",
        "        State                             : Completed",
        f"        ClusterUUID                       : {CLUSTER}",
        "    Processes",
        "        GPU instance ID                   : N/A",
        "        Process ID                        : 4242",
        "            Name                          : /opt/secret/train",
    )
    return "\n".join(lines) + "\n"


def answers(reasons: str = "0x0000000000000000", sm: int = 1980) -> dict[str, str]:
    """Return what each command prints, by its arguments; a query of samples is answered by its start."""
    listed = "".join(f"GPU {number}: NVIDIA H200 (UUID: {uuid})\n" for number, uuid in enumerate(UUIDS))
    sampled = "".join(
        f"{number}, {uuid}, P0, {sm}, 3201, 1980, 650.1, 700.00, 100, 61, {reasons}\n"
        for number, uuid in enumerate(UUIDS)
    )
    return {
        "-q -x": xml(),
        "-q": query(),
        "-L": listed + f"  MIG 1g.18gb     Device  0: (UUID: {MIG})\n",
        "--version": "NVIDIA-SMI version  : 570.86.15\nDRIVER version      : 570.86.15\n",
        "topo -m": "\t\x1b[4mGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\t0-55\nGPU1\tNV18\t X \t0-55\n",
        "nvlink -s": f"GPU 0: NVIDIA H200 (UUID: {UUIDS[0]})\n\t Link 0: 26.562 GB/s\n",
        "--help-query-gpu": 'List of valid properties to query:\n\n"name" or "gpu_name"\nThe "name".\n\n'
        '"serial"\nThe serial.\n\n"uuid" or "gpu_uuid"\nThe UUID.\n',
        "--query-gpu=name,serial,uuid --format=csv": "name, serial, uuid\n"
        + "".join(f"NVIDIA H200, {serial}, {uuid}\n" for serial, uuid in zip(SERIALS, UUIDS, strict=True)),
        "--query-gpu=index,": sampled,
    }


_PROGRAM = """#!{python} -IS
import json, sys, time
told = json.load(open({data!r}))
argv = " ".join(sys.argv[1:])
open({log!r}, "a").write(argv + "\\n")
if argv in told["hangs"]:
    time.sleep(600)
if argv in told["refused"]:
    print("Field is not a valid field to query."); sys.exit(2)
for key, text in told["answers"].items():
    if argv == key or (key.endswith(",") and argv.startswith(key)):
        sys.stdout.write(text); sys.exit(0)
print("Invalid combination of input arguments."); sys.exit(2)
"""


def program(
    folder: Path, told: dict[str, str] | None = None, hangs: tuple[str, ...] = (), refused: tuple[str, ...] = ()
) -> Path:
    """Write a stand-in nvidia-smi into `folder` and return its path; what it was asked stands in `asked.txt`."""
    data, log, path = folder / "told.json", folder / "asked.txt", folder / "bin/nvidia-smi"
    data.write_text(json.dumps({"answers": told or answers(), "hangs": hangs, "refused": refused}))
    path.parent.mkdir()
    path.write_text(_PROGRAM.format(python=sys.executable, data=os.fspath(data), log=os.fspath(log)))
    path.chmod(0o755)
    return path
