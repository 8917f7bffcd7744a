/*
 * A stand-in for the driver's library, libnvidia-ml, with the calls that the node agent makes. Its figures are read again at every call
 * from the file `figures` in the folder that the library is in:
 *
 *     gpu 0 util 35 used 20480 total 81920 mig 0      a `-` instead of a number: the driver does not support that
 *     process 0 4711 20480                            GPU, process id, MiB
 *     hang                                            every call waits for as long as this line is there
 *
 * Never: a driver, a GPU, or a figure that is not in the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
enum { MOST_GPUS = 16, MOST_PROCESSES = 64 };

struct gpu { int there; long long util, used, total, mig; };
struct process { unsigned gpu, pid; unsigned long long mib; };
struct figures { struct gpu gpus[MOST_GPUS]; struct process processes[MOST_PROCESSES]; unsigned count, listed; int hang; };

static long long number(const char *text) { return strcmp(text, "-") == 0 ? -1 : atoll(text); }

static int load(struct figures *figures) {
    Dl_info info;
    char path[4096], line[256], util[32], used[32], total[32], mig[32];
    if (!dladdr((void *)&number, &info)) return UNKNOWN;
    const char *slash = strrchr(info.dli_fname, '/');
    int folder = slash ? (int)(slash - info.dli_fname) : 1;
    snprintf(path, sizeof path, "%.*s/figures", folder, slash ? info.dli_fname : ".");
    do {
        memset(figures, 0, sizeof *figures);
        FILE *file = fopen(path, "r");
        if (!file) return UNKNOWN;
        while (fgets(line, sizeof line, file)) {
            unsigned at;
            struct process process;
            if (strncmp(line, "hang", 4) == 0) figures->hang = 1;
            if (sscanf(line, "gpu %u util %31s used %31s total %31s mig %31s", &at, util, used, total, mig) == 5 && at < MOST_GPUS) {
                figures->gpus[at] = (struct gpu){1, number(util), number(used), number(total), number(mig)};
                if (at >= figures->count) figures->count = at + 1;
            }
            if (sscanf(line, "process %u %u %llu", &process.gpu, &process.pid, &process.mib) == 3 && figures->listed < MOST_PROCESSES)
                figures->processes[figures->listed++] = process;
        }
        fclose(file);
        if (figures->hang) usleep(20 * 1000);
    } while (figures->hang);
    return SUCCESS;
}

/* A device is its number from 1, so that none is a null pointer. */
static int gpu_of(void *device, struct figures *figures, struct gpu **gpu) {
    uintptr_t at = (uintptr_t)device;
    int loaded = load(figures);
    if (loaded != SUCCESS) return loaded;
    if (at == 0 || at > figures->count || !figures->gpus[at - 1].there) return INVALID_ARGUMENT;
    *gpu = &figures->gpus[at - 1];
    return SUCCESS;
}

int nvmlInit_v2(void) { struct figures figures; return load(&figures); }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "580.00.00");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    struct figures figures;
    int loaded = load(&figures);
    *count = figures.count;
    return loaded;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    struct figures figures;
    struct gpu *gpu;
    *device = (void *)(uintptr_t)(index + 1);
    return gpu_of(*device, &figures, &gpu);
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "Stub GPU");
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "GPU-stub-%u", (unsigned)(uintptr_t)device - 1);
    return SUCCESS;
}

struct rates { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(void *device, struct rates *rates) {
    struct figures figures;
    struct gpu *gpu;
    int found = gpu_of(device, &figures, &gpu);
    if (found != SUCCESS) return found;
    if (gpu->util < 0) return NOT_SUPPORTED;
    rates->gpu = (unsigned)gpu->util;
    rates->memory = 0;
    return SUCCESS;
}

struct memory { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *info) {
    struct figures figures;
    struct gpu *gpu;
    int found = gpu_of(device, &figures, &gpu);
    if (found != SUCCESS) return found;
    if (gpu->used < 0 || gpu->total < gpu->used) return NOT_SUPPORTED;
    info->total = (unsigned long long)gpu->total << 20;
    info->used = (unsigned long long)gpu->used << 20;
    info->free = info->total - info->used;
    info->reserved = 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    struct figures figures;
    struct gpu *gpu;
    int found = gpu_of(device, &figures, &gpu);
    if (found != SUCCESS) return found;
    if (gpu->mig < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)gpu->mig;
    return SUCCESS;
}

struct listed { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

/* Asked with no room, it says how many there are and answers 7, as the driver does. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct listed *processes) {
    struct figures figures;
    struct gpu *gpu;
    unsigned there = 0, room = *count;
    int found = gpu_of(device, &figures, &gpu);
    if (found != SUCCESS) return found;
    for (unsigned at = 0; at < figures.listed; at++) {
        if (figures.processes[at].gpu + 1 != (uintptr_t)device) continue;
        if (there < room && processes)
            processes[there] = (struct listed){figures.processes[at].pid, figures.processes[at].mib << 20, 0xFFFFFFFF, 0xFFFFFFFF};
        there++;
    }
    *count = there;
    return there > room ? INSUFFICIENT_SIZE : SUCCESS;
}
