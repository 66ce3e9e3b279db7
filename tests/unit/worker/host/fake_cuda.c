/* Stands in for libcuda.so.1 as the real one behaves: each call answers 3 before cuInit, and 3 in a process that was
 * forked after it. cuInit of such a process fails as well. */
#include <string.h>
#include <unistd.h>

static pid_t opened = 0;

int cuInit(unsigned int flags) {
    (void)flags;
    if (opened && opened != getpid()) return 3;
    opened = getpid();
    return 0;
}

int cuDeviceGetCount(int *count) {
    if (opened != getpid()) return 3;
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int number) {
    *device = number;
    return opened == getpid() ? 0 : 3;
}

int cuDeviceGetUuid(char *uuid, int device) {
    (void)device;
    memcpy(uuid, "a1b2", 4);
    return opened == getpid() ? 0 : 3;
}
