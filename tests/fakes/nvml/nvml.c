/* A driver library for tests: NVML's symbols, answered from a text file.
 *
 * ENVLOCK_FAKE_NVML names the file. Each line is KEY=VALUE; a key is a function of NVML
 * without version suffix, and `3.KEY` is GPU number 3's own. What is not in the file is
 * "not supported" (3). Lists are separated by commas, `18*1` in one is eighteen ones, and
 * a number past the end of a list is an invalid argument (2).
 *
 *   count=8                       GPUs that are counted
 *   nvmlDeviceGetSerial=!4        the error code 4; `!hang` never returns, `!crash` ends the process
 *   2.*=!15                       every question to GPU 2 has this answer
 *   2.handle=!4                   opening GPU 2 has this answer
 *   2.mig=INDEX:ID:START:PROFILE  its MIG devices, separated by blanks
 *   delay=50                      microseconds that each call takes at least; `delay.NAME=…` for one function
 *   attach=900000                 microseconds that waking each GPU takes, unless told not to
 *   print=TEXT                    said on standard output at the start
 *
 * ENVLOCK_FAKE_NVML_TIME names a file that always holds the nanoseconds spent in here and
 * the number of calls, as two 64-bit numbers.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef unsigned int uint;
typedef unsigned long long u64;
typedef void *Handle;

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, VERSION = 25 };
enum { MOST_LINES = 4096, MIG = 1000, INSTANCE = 100000, MOST_MIG = 64 };

static struct { char *key, *value; } lines[MOST_LINES];
static int line_count = -1;
static u64 *spent;

static u64 now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (u64)at.tv_sec * 1000000000ull + (u64)at.tv_nsec;
}

static void load(void) {
  if (line_count >= 0) return;
  line_count = 0;
  const char *path = getenv("ENVLOCK_FAKE_NVML"), *time_path = getenv("ENVLOCK_FAKE_NVML_TIME");
  FILE *file = path ? fopen(path, "r") : NULL;
  char text[4096];
  while (file && fgets(text, sizeof text, file)) {
    char *equals = strchr(text, '=');
    text[strcspn(text, "\n")] = 0;
    if (text[0] == '#' || !equals || line_count == MOST_LINES) continue;
    *equals = 0;
    lines[line_count].key = strdup(text);
    lines[line_count++].value = strdup(equals + 1);
  }
  if (file) fclose(file);
  int descriptor = time_path ? open(time_path, O_RDWR | O_CREAT, 0644) : -1;
  if (descriptor >= 0 && ftruncate(descriptor, 16) == 0)
    spent = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
}

static const char *find(const char *key) {
  for (int i = 0; i < line_count; i++)
    if (!strcmp(lines[i].key, key)) return lines[i].value;
  return NULL;
}

static const char *find_at(int gpu, const char *key) {
  char own[160];
  snprintf(own, sizeof own, "%d.%s", gpu, key);
  return find(own);
}

/* The time of a call: it lasts as long as the file says, and is summed up. */
struct timing { u64 begin; };

static void finish(struct timing *timing) {
  if (!spent) return;
  spent[0] += now() - timing->begin;
  spent[1] += 1;
}

static void last(const char *name, u64 begin) {
  char key[160];
  snprintf(key, sizeof key, "delay.%s", name);
  const char *found = find(key);
  if (!found) found = find("delay");
  u64 end = begin + (found ? strtoull(found, NULL, 10) * 1000 : 0);
  for (u64 at = now(); at < end; at = now()) {
    u64 left = end - at;
    struct timespec part = {(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
    if (left > 5000000) nanosleep(&part, NULL); /* a shorter sleep would last as long as the kernel likes */
  }
}

/* Return the value of a question, or NULL with `code` set. */
static const char *answer(int gpu, const char *name, int *code) {
  const char *found = gpu >= 0 ? find_at(gpu, "*") : NULL;
  if (!found && gpu >= 0) found = find_at(gpu, name);
  if (!found) found = find(name);
  *code = found ? SUCCESS : NOT_SUPPORTED;
  if (!found || found[0] != '!') return found;
  if (!strcmp(found, "!hang"))
    for (;;) pause();
  if (!strcmp(found, "!crash")) raise(SIGSEGV);
  *code = atoi(found + 1);
  return NULL;
}

static int gpu_of(Handle handle) {
  long number = (long)handle;
  if (number >= INSTANCE) return (int)((number - INSTANCE) / MOST_MIG);
  return number >= MIG ? (int)((number - MIG) / MOST_MIG) : (int)number - 1;
}

#define BEGIN(gpu, name)                                                                \
  load();                                                                               \
  struct timing timing __attribute__((cleanup(finish))) = {now()};                      \
  int code;                                                                             \
  const char *found = answer(gpu, name, &code);                                         \
  last(name, timing.begin);                                                             \
  if (!found) return code

/* Return the item `index` of a list as a number; INVALID past its end. */
static int item(const char *list, uint index, long long *out) {
  for (const char *at = list; *at;) {
    char *rest;
    long long first = (long long)strtoull(at, &rest, 0), times = 1;
    if (*rest == '*') {
      times = first;
      first = (long long)strtoull(rest + 1, &rest, 0);
    }
    if (index < times) {
      *out = first;
      return SUCCESS;
    }
    index -= (uint)times;
    at = *rest == ',' ? rest + 1 : rest + strlen(rest);
  }
  return INVALID;
}

static long long number(const char *list, uint index) {
  long long out = 0;
  item(list, index, &out);
  return out;
}

/* Write a text; `\xf8` in it is that byte. */
static void put(char *out, const char *text, size_t size) {
  size_t length = 0;
  for (const char *at = text; *at && length + 1 < size; at++) {
    if (at[0] == '\\' && at[1] == 'x') {
      char digits[3] = {at[2], at[3], 0};
      out[length++] = (char)strtol(digits, NULL, 16);
      at += 3;
    } else {
      out[length++] = *at;
    }
  }
  out[length] = 0;
}

/* ---- the library itself ---- */

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static int started;

static int start(uint flags) {
  struct timing timing __attribute__((cleanup(finish))) = {now()};
  const char *said = find("print"), *attach = find("attach"), *count = find("count");
  if (said) {
    puts(said);
    fflush(stdout);
  }
  int code;
  answer(-1, "nvmlInit", &code);
  if (code != SUCCESS && code != NOT_SUPPORTED) return code;
  last("nvmlInit", timing.begin);
  if (attach && !(flags & 2)) usleep((uint)(atoi(attach) * (count ? atoi(count) : 0)));
  return SUCCESS;
}

/* Once for the process: a second caller waits for the first, and its waiting is not counted. */
int nvmlInitWithFlags(uint flags) {
  pthread_mutex_lock(&starting);
  load();
  int code = started ? SUCCESS : start(flags);
  started = code == SUCCESS;
  pthread_mutex_unlock(&starting);
  return code;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
  static char text[40];
  snprintf(text, sizeof text, "fake error %d", code);
  return text;
}

static int system_text(const char *name, char *out, uint size) {
  BEGIN(-1, name);
  put(out, found, size);
  return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *out, uint size) { return system_text("nvmlSystemGetDriverVersion", out, size); }
int nvmlSystemGetNVMLVersion(char *out, uint size) { return system_text("nvmlSystemGetNVMLVersion", out, size); }

int nvmlSystemGetCudaDriverVersion_v2(int *out) {
  BEGIN(-1, "nvmlSystemGetCudaDriverVersion");
  *out = (int)number(found, 0);
  return SUCCESS;
}

struct branch { uint version; char branch[80]; };

int nvmlSystemGetDriverBranch(struct branch *out, uint size) {
  BEGIN(-1, "nvmlSystemGetDriverBranch");
  if ((out->version & 0xffffff) != sizeof *out) return VERSION;
  put(out->branch, found, size);
  return SUCCESS;
}

struct confidential { uint environment, feature, tools; };

int nvmlSystemGetConfComputeState(struct confidential *out) {
  BEGIN(-1, "nvmlSystemGetConfComputeState");
  out->feature = (uint)number(found, 0);
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(uint *out) {
  BEGIN(-1, "count");
  *out = (uint)number(found, 0);
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, Handle *out) {
  load();
  struct timing timing __attribute__((cleanup(finish))) = {now()};
  const char *refused = find_at((int)index, "handle");
  last("nvmlDeviceGetHandleByIndex", timing.begin);
  if (refused) return atoi(refused + 1);
  *out = (Handle)(long)(index + 1);
  return SUCCESS;
}

/* ---- one function for each shape of answer ---- */

#define TEXT(name)                                      \
  int name(Handle gpu, char *out, uint size) {          \
    BEGIN(gpu_of(gpu), #name);                          \
    put(out, found, size);                              \
    return SUCCESS;                                     \
  }
#define NUMBER(name)                                    \
  int name(Handle gpu, uint *out) {                     \
    BEGIN(gpu_of(gpu), #name);                          \
    *out = (uint)number(found, 0);                      \
    return SUCCESS;                                     \
  }
#define TWO(name)                                       \
  int name(Handle gpu, uint *first, uint *second) {     \
    BEGIN(gpu_of(gpu), #name);                          \
    *first = (uint)number(found, 0);                    \
    *second = (uint)number(found, 1);                   \
    return SUCCESS;                                     \
  }
#define MASK(name)                                      \
  int name(Handle gpu, u64 *out) {                      \
    BEGIN(gpu_of(gpu), #name);                          \
    *out = (u64)number(found, 0);                       \
    return SUCCESS;                                     \
  }
#define LISTED(name)                                    \
  int name(Handle gpu, uint which, uint *out) {         \
    long long value;                                    \
    BEGIN(gpu_of(gpu), #name);                          \
    code = item(found, which, &value);                  \
    if (code == SUCCESS) *out = (uint)value;            \
    return code;                                        \
  }

/* A list with one item for each other GPU. */
static int pair(Handle gpu, Handle other, const char *name, uint *out) {
  long long value;
  BEGIN(gpu_of(gpu), name);
  if (!answer(gpu_of(other), name, &code)) return code;
  code = item(found, (uint)gpu_of(other), &value);
  if (code == SUCCESS) *out = (uint)value;
  return code;
}

TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetBoardPartNumber)
TEXT(nvmlDeviceGetVbiosVersion)
TEXT(nvmlDeviceGetInforomImageVersion)
NUMBER(nvmlDeviceGetBrand)
NUMBER(nvmlDeviceGetArchitecture)
NUMBER(nvmlDeviceGetNumGpuCores)
NUMBER(nvmlDeviceGetMemoryBusWidth)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER(nvmlDeviceGetVirtualizationMode)
NUMBER(nvmlDeviceGetHostVgpuMode)
NUMBER(nvmlDeviceGetDefaultEccMode)
NUMBER(nvmlDeviceGetInforomConfigurationChecksum)
NUMBER(nvmlDeviceGetPowerManagementLimit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus)
NUMBER(nvmlDeviceGetMinorNumber)
NUMBER(nvmlDeviceGetNumaNodeId)
NUMBER(nvmlDeviceGetModuleId)
NUMBER(nvmlDeviceGetMaxMigDeviceCount)
NUMBER(nvmlDeviceGetC2cModeInfoV)
TWO(nvmlDeviceGetCudaComputeCapability)
TWO(nvmlDeviceGetEccMode)
TWO(nvmlDeviceGetMigMode)
TWO(nvmlDeviceGetGspFirmwareMode)
TWO(nvmlDeviceGetGpuOperationMode)
TWO(nvmlDeviceGetPowerManagementLimitConstraints)
MASK(nvmlDeviceGetCurrentClocksEventReasons)
LISTED(nvmlDeviceGetMaxClockInfo)
LISTED(nvmlDeviceGetMaxCustomerBoostClock)
LISTED(nvmlDeviceGetApplicationsClock)
LISTED(nvmlDeviceGetDefaultApplicationsClock)
LISTED(nvmlDeviceGetNvLinkState)
LISTED(nvmlDeviceGetNvLinkVersion)
LISTED(nvmlDeviceGetNvLinkRemoteDeviceType)

int nvmlDeviceGetTopologyCommonAncestor(Handle gpu, Handle other, uint *out) {
  return pair(gpu, other, "nvmlDeviceGetTopologyCommonAncestor", out);
}

int nvmlDeviceGetP2PStatus(Handle gpu, Handle other, uint which, uint *out) {
  return which == 0 ? pair(gpu, other, "nvmlDeviceGetP2PStatus", out) : INVALID;
}

int nvmlDeviceGetGspFirmwareVersion(Handle gpu, char *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetGspFirmwareVersion");
  put(out, found, 64);
  return SUCCESS;
}

int nvmlDeviceValidateInforom(Handle gpu) {
  BEGIN(gpu_of(gpu), "nvmlDeviceValidateInforom");
  return SUCCESS;
}

/* A list of texts, one for each object; an empty one is not supported. */
int nvmlDeviceGetInforomVersion(Handle gpu, uint which, char *out, uint size) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetInforomVersion");
  char *copy = strdup(found), *rest = copy, *part = copy;
  for (uint at = 0; part && at <= which; at++) part = strsep(&rest, ",");
  code = part && *part ? SUCCESS : NOT_SUPPORTED;
  if (code == SUCCESS) put(out, part, size);
  free(copy);
  return code;
}

int nvmlDeviceGetRemappedRows(Handle gpu, uint *correctable, uint *uncorrectable, uint *pending, uint *failed) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetRemappedRows");
  *correctable = (uint)number(found, 0);
  *uncorrectable = (uint)number(found, 1);
  *pending = (uint)number(found, 2);
  *failed = (uint)number(found, 3);
  return SUCCESS;
}

static int words(int gpu, const char *name, uint size, u64 *out) {
  BEGIN(gpu, name);
  for (uint at = 0; at < size; at++) {
    long long word = 0;
    out[at] = item(found, at, &word) == SUCCESS ? (u64)word : 0;
  }
  return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(Handle gpu, uint size, u64 *out) {
  return words(gpu_of(gpu), "nvmlDeviceGetCpuAffinity", size, out);
}

int nvmlDeviceGetMemoryAffinity(Handle gpu, uint size, u64 *out, uint scope) {
  (void)scope;
  return words(gpu_of(gpu), "nvmlDeviceGetMemoryAffinity", size, out);
}

struct memory { u64 total, free, used; };

int nvmlDeviceGetMemoryInfo(Handle gpu, struct memory *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetMemoryInfo");
  out->total = (u64)number(found, 0) << 20;
  out->free = out->used = 0;
  return SUCCESS;
}

/* ADDRESS,DEVICE,SUBSYSTEM */
struct pci { char old[16]; uint domain, bus, device, id, subsystem; char address[32]; };

int nvmlDeviceGetPciInfo_v3(Handle gpu, struct pci *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetPciInfo");
  memset(out, 0, sizeof *out);
  const char *comma = strchr(found, ',');
  snprintf(out->address, sizeof out->address, "%.*s", (int)(comma - found), found);
  out->id = (uint)number(comma + 1, 0);
  out->subsystem = (uint)number(comma + 1, 1);
  return SUCCESS;
}

/* ---- structures that the caller fills with a version ---- */

#define FILLED(out) if (((out)->version & 0xffffff) != sizeof *(out)) return VERSION

struct addressing { uint version, value; };

int nvmlDeviceGetAddressingMode(Handle gpu, struct addressing *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetAddressingMode");
  FILLED(out);
  out->value = (uint)number(found, 0);
  return SUCCESS;
}

struct pdi { uint version; u64 value; };

int nvmlDeviceGetPdi(Handle gpu, struct pdi *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetPdi");
  FILLED(out);
  out->value = strtoull(found, NULL, 0);
  return SUCCESS;
}

struct encryption { uint version, state; };

int nvmlDeviceGetDramEncryptionMode(Handle gpu, struct encryption *now_, struct encryption *pending) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetDramEncryptionMode");
  FILLED(now_);
  now_->state = pending->state = (uint)number(found, 0);
  return SUCCESS;
}

struct offsets { uint version, type, pstate; int offset, low, high; };

int nvmlDeviceGetClockOffsets(Handle gpu, struct offsets *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetClockOffsets");
  FILLED(out);
  out->offset = (int)number(found, out->type);
  return SUCCESS;
}

/* STATE,STATUS, and the bytes of the cluster */
struct fabric { uint version; uint8_t cluster[16]; uint status, clique, state, health; };

int nvmlDeviceGetGpuFabricInfoV(Handle gpu, struct fabric *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetGpuFabricInfo");
  FILLED(out);
  out->state = (uint)number(found, 0);
  out->status = (uint)number(found, 1);
  for (uint at = 0; at < 16; at++) out->cluster[at] = (uint8_t)number(found, 2 + at);
  return SUCCESS;
}

/* CHASSIS,SLOT,TRAY,HOST,PEERS,MODULE */
struct platform { uint version; char guid[16], chassis[16]; uint8_t rest[5]; };

int nvmlDeviceGetPlatformInfo(Handle gpu, struct platform *out) {
  BEGIN(gpu_of(gpu), "nvmlDeviceGetPlatformInfo");
  FILLED(out);
  put(out->chassis, found, sizeof out->chassis);
  out->chassis[strcspn(out->chassis, ",")] = 0;
  for (uint at = 0; at < 5; at++) out->rest[at] = (uint8_t)number(strchr(found, ',') + 1, at);
  return SUCCESS;
}

/* `field.230=0`; a field that is not in the file is not supported. */
struct field { uint id, scope; long long time, latency; uint type; int code; union { u64 number; } value; };

int nvmlDeviceGetFieldValues(Handle gpu, int count, struct field *fields) {
  load();
  struct timing timing __attribute__((cleanup(finish))) = {now()};
  int code;
  const char *all = answer(gpu_of(gpu), "nvmlDeviceGetFieldValues", &code);
  last("nvmlDeviceGetFieldValues", timing.begin);
  if (!all && code != NOT_SUPPORTED) return code;
  for (int at = 0; at < count; at++) {
    char name[40];
    snprintf(name, sizeof name, "field.%u", fields[at].id);
    const char *found = answer(gpu_of(gpu), name, &fields[at].code);
    fields[at].type = 3;
    fields[at].value.number = found ? (u64)number(found, 0) : 0;
  }
  return SUCCESS;
}

/* ---- MIG ---- */

struct device { int index, instance, start; char profile[64]; };

static int devices(int gpu, struct device *out) {
  const char *listed = find_at(gpu, "mig");
  char *copy = strdup(listed ? listed : ""), *rest = copy, *part;
  int count = 0;
  while (count < MOST_MIG && (part = strsep(&rest, " ")))
    if (sscanf(part, "%d:%d:%d:%63s", &out[count].index, &out[count].instance, &out[count].start,
               out[count].profile) == 4)
      count++;
  free(copy);
  return count;
}

static int device_of(Handle handle, struct device *out) {
  struct device all[MOST_MIG];
  long number_ = (long)handle - MIG;
  if (number_ < 0 || number_ % MOST_MIG >= devices((int)(number_ / MOST_MIG), all)) return 0;
  *out = all[number_ % MOST_MIG];
  return 1;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Handle gpu, uint index, Handle *out) {
  load();
  struct timing timing __attribute__((cleanup(finish))) = {now()};
  struct device all[MOST_MIG];
  int code;
  answer(gpu_of(gpu), "nvmlDeviceGetMigDeviceHandleByIndex", &code);
  if (code != SUCCESS && code != NOT_SUPPORTED) return code;
  for (int at = 0, count = devices(gpu_of(gpu), all); at < count; at++)
    if (all[at].index == (int)index) {
      *out = (Handle)(long)(MIG + gpu_of(gpu) * MOST_MIG + at);
      return SUCCESS;
    }
  return NOT_FOUND;
}

int nvmlDeviceGetName(Handle gpu, char *out, uint size) {
  struct device device;
  BEGIN(gpu_of(gpu), "nvmlDeviceGetName");
  put(out, found, size);
  if ((long)gpu >= MIG && device_of(gpu, &device))
    snprintf(out + strlen(out), size - strlen(out), " MIG %s", device.profile);
  return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Handle gpu, uint *out) {
  struct device device;
  load();
  if (!device_of(gpu, &device)) return INVALID;
  *out = (uint)device.instance;
  return SUCCESS;
}

int nvmlDeviceGetGpuInstanceById(Handle gpu, uint id, Handle *out) {
  load();
  struct device all[MOST_MIG];
  int code;
  answer(gpu_of(gpu), "nvmlDeviceGetGpuInstanceById", &code);
  if (code != SUCCESS && code != NOT_SUPPORTED) return code;
  for (int at = 0, count = devices(gpu_of(gpu), all); at < count; at++)
    if (all[at].instance == (int)id) {
      *out = (Handle)(long)(INSTANCE + gpu_of(gpu) * MOST_MIG + at);
      return SUCCESS;
    }
  return NOT_FOUND;
}

struct placed { Handle gpu; uint id, profile, start, size; };

int nvmlGpuInstanceGetInfo(Handle instance, struct placed *out) {
  struct device all[MOST_MIG];
  long number_ = (long)instance - INSTANCE;
  devices((int)(number_ / MOST_MIG), all);
  memset(out, 0, sizeof *out);
  out->id = (uint)all[number_ % MOST_MIG].instance;
  out->start = (uint)all[number_ % MOST_MIG].start;
  return SUCCESS;
}
