/* Answers as NVML does, with the values of a file that NVML_VALUES names: a line "name value" each,
   read anew for every answer. A name that ends in @N holds from the Nth reading of that name on.
   What has no line is not supported. Structures are those of NVIDIA's API reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (sscanf(line, "%127s %127[^\n]", key, said) != 2) continue;
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

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  char text[128];
  if (!value("uuid", text) || strcmp(text, uuid)) return NOT_FOUND;
  *device = (void *)99;
  return 0;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size) { return words("name", name, size); }
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
  if (!value("processes", text)) return 0;
  for (char *one = strtok(text, ","); one && *count < room; one = strtok(0, ",")) {
    all[*count].pid = strcmp(one, "self") ? (unsigned)atoi(one) : 0;
    all[*count].memory = 1;
    ++*count;
  }
  return 0;
}
