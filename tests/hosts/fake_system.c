/* Answers of the kernel that no file gives, from variables: FAKE_CPUS ("0-3,8": the CPUs that this
   process may use), FAKE_MACHINE and FAKE_KERNEL (uname). Without a variable, the real answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
  const char *text = getenv("FAKE_CPUS");
  memset(set, 0, size);
  if (!text) return syscall(SYS_sched_getaffinity, pid, size, set) < 0 ? -1 : 0;
  while (*text) {
    char *end;
    size_t first = strtoul(text, &end, 10), last = first;
    if (*end == '-') last = strtoul(end + 1, &end, 10);
    if (last >= 8 * size) { errno = EINVAL; return -1; }
    for (; first <= last; first++) CPU_SET_S(first, size, set);
    text = *end ? end + 1 : end;
  }
  return 0;
}

int uname(struct utsname *names) {
  const char *machine = getenv("FAKE_MACHINE"), *kernel = getenv("FAKE_KERNEL");
  int failed = syscall(SYS_uname, names) < 0 ? -1 : 0;
  if (machine) strncpy(names->machine, machine, sizeof names->machine - 1);
  if (kernel) strncpy(names->release, kernel, sizeof names->release - 1);
  return failed;
}
