/* Stands in for libnvidia-ml.so.1: one GPU, GPU-a, number 3. Each question for its memory or its processes is
 * answered by the next line of the file $FAKE_NVML ("total used pid"), and takes that line away; the last stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } Process;
static int line = 0;

static int next(unsigned long long *total, unsigned long long *used, unsigned int *pid) {
    FILE *file = fopen(getenv("FAKE_NVML"), "r");
    if (file == NULL) return 999;
    for (int at = 0; at <= line; at++)
        if (fscanf(file, "%llu %llu %u", total, used, pid) != 3) break;
    fclose(file);
    line++;
    return 0;
}

int nvmlInit_v2(void) { return getenv("FAKE_NVML") == NULL ? 9 : 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)0x7f00deadbeefULL;
    return index == 3 ? 0 : 6;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)0x7f00deadbeefULL;
    return strcmp(uuid, "GPU-a") ? 6 : 0;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    unsigned int pid;
    if (device != (void *)0x7f00deadbeefULL) return 2;
    return next(&memory->total, &memory->used, &pid);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, Process *processes) {
    unsigned long long total, used;
    if (device != (void *)0x7f00deadbeefULL || *count < 2) return 2;
    *count = 2;
    processes[0].pid = 1;
    return next(&total, &used, &processes[1].pid);
}
