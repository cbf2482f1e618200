/* Answers as NVML does, with the values of a file that NVML_VALUES names: a line "name value" each,
   read anew for every answer. A name that ends in @N holds from the Nth reading of that name on.
   What has no line is not supported. Structures are those of NVIDIA's API reference.
   Device N has the handle N + 1. "uuids" has the UUIDs of all devices, with commas. Device 0 may
   have MIG instances, whose handles begin at 101: their UUIDs are "mig_uuids". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIRST_INSTANCE = 101 };

enum { UNSUPPORTED = 3, NOT_FOUND = 6 };
static struct { char name[64]; int readings; } seen[64];

static int reading(const char *name) {
  int i = 0;
  while (i < 63 && seen[i].name[0] && strcmp(seen[i].name, name)) i++;
  snprintf(seen[i].name, sizeof seen[i].name, "%s", name);
  return ++seen[i].readings;
}

static int value(const char *name, char *text) {
  char line[256], key[128], said[128];
  int now = reading(name), found = 0;
  FILE *file = fopen(getenv("NVML_VALUES"), "r");
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    said[0] = 0;
    if (sscanf(line, "%127s %127[^\n]", key, said) < 1) continue;
    char *from = strchr(key, '@');
    if (from) *from = 0;
    if (strcmp(key, name) || (from && atoi(from + 1) > now)) continue;
    strcpy(text, said);
    found = 1;
  }
  fclose(file);
  return found;
}

static int number(const char *name, unsigned long long *answer) {
  char text[128];
  if (!value(name, text)) return UNSUPPORTED;
  *answer = strtoull(text, 0, 10);
  return 0;
}

static int whole(const char *name, unsigned *answer) {
  unsigned long long wide;
  int failed = number(name, &wide);
  if (!failed) *answer = (unsigned)wide;
  return failed;
}

static int words(const char *name, char *answer, unsigned size) {
  char text[128];
  if (!value(name, text)) return UNSUPPORTED;
  snprintf(answer, size, "%s", text);
  return 0;
}

int nvmlInit_v2(void) { return getenv("NVML_VALUES") ? 0 : 9; }
int nvmlDeviceGetCount_v2(unsigned *count) { return whole("count", count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned number_of, void **device) {
  unsigned count = 0;
  whole("count", &count);
  *device = (void *)(unsigned long)(number_of + 1);
  return number_of < count ? 0 : 2;
}

/* Copy the item of this number out of the list of that name, as many UUIDs are. */
static int item(const char *name, unsigned number_of, char *answer, unsigned size) {
  char text[128];
  if (!value(name, text)) return UNSUPPORTED;
  char *one = strtok(text, ",");
  while (one && number_of--) one = strtok(0, ",");
  if (!one) return NOT_FOUND;
  snprintf(answer, size, "%s", one);
  return 0;
}

static unsigned long number_of(void *device) { return (unsigned long)device; }

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
  return number_of(device) < FIRST_INSTANCE
             ? item("uuids", number_of(device) - 1, uuid, size)
             : item("mig_uuids", number_of(device) - FIRST_INSTANCE, uuid, size);
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  if (number_of(device) != 1) return UNSUPPORTED;
  return whole("mig", current) || whole("mig", pending);
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = 7; return 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) {
  char uuid[128];
  *instance = (void *)(unsigned long)(FIRST_INSTANCE + index);
  return item("mig_uuids", index, uuid, sizeof uuid);
}

int nvmlDeviceGetGpuInstanceId(void *instance, unsigned *id) {
  *id = number_of(instance) - FIRST_INSTANCE + 1;
  return 0;
}

int nvmlDeviceGetComputeInstanceId(void *instance, unsigned *id) { *id = 0; return 0; }

int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = number_of(device) - 1; return 0; }

int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  int failed = words("name", name, size);
  if (number_of(device) >= FIRST_INSTANCE) strncat(name, " MIG 1g.5gb", size - strlen(name) - 1);
  return failed;
}

int nvmlDeviceGetCpuAffinity(void *device, unsigned size, unsigned long *cpus) {
  char name[32];
  unsigned long long bits;
  snprintf(name, sizeof name, "cpus_%lu", number_of(device) - 1);
  memset(cpus, 0, size * sizeof *cpus);
  int failed = number(name, &bits);
  cpus[0] = bits;
  return failed;
}

struct pci { char legacy[16]; unsigned domain, bus, slot, ids, subsystem; char id[32]; };

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = (unsigned)number_of(device);
  return 0;
}

/* "nvlinks_N" has what each NVLink of device N leads to: the number of a device, cpu or switch. */
static int nvlink(void *device, unsigned link, char *end, unsigned size) {
  char name[32];
  snprintf(name, sizeof name, "nvlinks_%lu", number_of(device) - 1);
  return item(name, link, end, size);
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
  char end[32];
  *active = 1;
  return nvlink(device, link, end, sizeof end);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *kind) {
  char end[32];
  int failed = nvlink(device, link, end, sizeof end);
  *kind = !failed && !strcmp(end, "cpu") ? 1 : !failed && !strcmp(end, "switch") ? 2 : 0;
  return failed;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci) {
  char end[32];
  int failed = nvlink(device, link, end, sizeof end);
  memset(pci, 0, sizeof *pci);
  pci->bus = failed ? 0 : (unsigned)atoi(end) + 1;
  return failed;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *generation) {
  return whole("pcie_generation", generation);
}

int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes) {
  return whole("pcie_lanes", lanes);
}

int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) { return whole("persistence", mode); }
int nvmlDeviceGetComputeMode(void *device, unsigned *mode) { return whole("compute_mode", mode); }

int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending) {
  return whole("ecc", current) || whole("ecc", pending);
}

int nvmlDeviceGetApplicationsClock(void *device, unsigned kind, unsigned *mhz) {
  return kind == 1 ? whole("application_clock", mhz) : UNSUPPORTED;
}

int nvmlSystemGetDriverVersion(char *name, unsigned size) { return words("driver", name, size); }

int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz) {
  return kind == 1 ? whole("clock", mhz) : UNSUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *mhz) {
  return kind == 1 ? whole("most_clock", mhz) : UNSUPPORTED;
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
  return sensor == 0 ? whole("temperature", celsius) : UNSUPPORTED;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
  return whole("power_limit", milliwatts);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  return number("energy", millijoules);
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) {
  return number("memory_total", total_free_used) || number("memory_used", total_free_used + 2);
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *gpu_memory) {
  gpu_memory[1] = 0;
  return whole("busy", gpu_memory);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits) {
  return number("reasons", bits);
}

int nvmlDeviceGetViolationStatus(void *device, unsigned policy, unsigned long long *times) {
  char name[32];
  snprintf(name, sizeof name, "held_%u", policy);
  times[0] = 0;
  return number(name, times + 1);
}

/* A driver before 450 (DRIVER_440) has the first version alone, and shorter structures. */
#ifdef DRIVER_440
#define ASKED nvmlDeviceGetComputeRunningProcesses
struct process { unsigned pid; unsigned long long memory; };
#else
#define ASKED nvmlDeviceGetComputeRunningProcesses_v3
struct process { unsigned pid; unsigned long long memory; unsigned gpu, compute; };
#endif

int ASKED(void *device, unsigned *count, struct process *all) {
  char text[128];
  unsigned room = *count;
  *count = 0;
  if (!value("processes", text)) return UNSUPPORTED;
  for (char *one = strtok(text, ","); one && *count < room; one = strtok(0, ",")) {
    all[*count].pid = strcmp(one, "self") ? (unsigned)atoi(one) : (unsigned)getpid();
    all[*count].memory = 1;
    ++*count;
  }
  return 0;
}
