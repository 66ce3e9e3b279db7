/* Stands in for libnvidia-ml.so.1: GPU-a1b2 is number 3, GPU-a9b8 number 2, of another model with $FAKE_NVML_MIXED. A
 * UUID has to be given in full. Each question for the memory or the processes of a GPU is answered by the next line of
 * the file $FAKE_NVML ("total used pid"), and takes that line away; the last stays. The driver's own 500 are reserved:
 * the second form of the question leaves them out, the first one, all that $FAKE_NVML_OLD knows, does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned int pid; unsigned long long used; unsigned int instance, compute; } Process;
static int line = 0;
static char *const first = (char *)0x7f00deadbeefULL;

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

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 4;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = first + index;
    return index == 2 || index == 3 ? 0 : 6;
}

static const char *name(void *device) { return device == first + 3 ? "GPU-a1b2" : "GPU-a9b8"; }

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length) {
    if (length < 96) return 7;
    strcpy(uuid, name(device));
    return 0;
}

int nvmlDeviceGetName(void *device, char *model, unsigned int length) {
    if (length < 96) return 7;
    strcpy(model, getenv("FAKE_NVML_MIXED") && device == first + 2 ? "T4" : "H100");
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    for (int index = 2; index <= 3; index++) {
        *device = first + index;
        if (!strcmp(uuid, name(*device))) return 0;
    }
    return 6;
}

int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    unsigned int pid;
    if (device != first + 3) return 2;
    int code = next(&memory->total, &memory->used, &pid);
    memory->used += 500;
    return code;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *memory) {
    unsigned int pid;
    if (getenv("FAKE_NVML_OLD")) return 13;
    if (device != first + 3) return 2;
    if (memory->version != (sizeof(Memory2) | 2 << 24)) return 25;
    memory->reserved = 500;
    return next(&memory->total, &memory->used, &pid);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, Process *processes) {
    unsigned long long total, used;
    if (device != first + 3 || *count < 2) return 2;
    *count = 2;
    processes[0].pid = 1;
    return next(&total, &used, &processes[1].pid);
}
