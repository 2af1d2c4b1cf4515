"""Digests of the integer references of T1, computed in plain Python and checked by a test.

Each is `tensors.hash_bytes` over int64. The test in plain Python that made them needs no torch.
Travels to nodes: standard library only, Python 3.8 and newer.
"""

from __future__ import annotations

from typing import Dict

ANSWERS: Dict[str, str] = {
    "wide.33x64x47": "sha256:7b664b7acad6f9218305630d677801e861d1e90a025410356258f7eeec26f400",
    "wide.33x1000x47": "sha256:001039a6f2b9a1b299f45c9f98ac33ac5363652fa8ea9d56dc12afc477ff4fce",
    "wide.33x4096x47": "sha256:a75c1a862bad9cc035cb04a93a6205835ae342cf2f0fbbb327f5d1cb76086f82",
    "wide.1x1000x263": "sha256:1663647a6e03393576010ceb6be96c8869b8a0f61e460f0f0defa1091161d5f9",
    "wide.257x1000x263": "sha256:67f6763252d463621495e201aa7e4d8cd87b574d0b47622bf27fd8f8ff7e33b4",
    "narrow.33x64x47": "sha256:c8e282fc58cd3bbb922b5adb1216233a7f4bfa87abed50064bd3348f2a3357ee",
    "narrow.33x256x47": "sha256:c80bc3ec438a7ed178d07b5d67bab8366fbccf5ec487c8b15cefb2905ca2fbfb",
    "int8.48x64x56": "sha256:75b08aa344c955a7629a83af8cbf9b5edad1cd07e12602a105f3d02077df9d38",
    "int8.40x1000x48": "sha256:d4d738594a03854d3c2bf0b40d3b0f00020cbe0a7948f68e6ba16d31feba1cc5",
    "conv.8-16-9-3-1-1": "sha256:eb1fbe9faed4a0998eb6561f13120f50d1a3040ad4d39df043af63caa9eff923",
    "conv.8-16-11-5-2-1": "sha256:4db0f60b25dd92ecc9190b643698fb8dc22853261b55ab06f16a504c0fb95cbf",
    "conv.8-8-9-3-1-8": "sha256:607d31897b2e77b5bd1289fd6be5cc96bec2aca88d42def3abf03e05802a4a4a",
    "conv.8-16-9-3-2-2": "sha256:5d27fb096122bcc1cb0d2c0d4b5dd236ba8de96edc921fa5c19ecb035c551302",
}
