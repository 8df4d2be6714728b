/* proc.c - see proc.h. */
#include "machine/proc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t dpb_proc_tick_ns(void)
{
    long per_s = sysconf(_SC_CLK_TCK);
    return 1000000000 / (per_s > 0 ? per_s : 100);
}

static uint64_t read_io(const char *root, int32_t pid)
{
    char path[PATH_MAX], line[128];
    unsigned long long read_bytes = 0, written_bytes = 0;
    snprintf(path, sizeof path, "%s/proc/%d/io", root, pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "rchar: %llu", &read_bytes);
        sscanf(line, "wchar: %llu", &written_bytes);
    }
    if (file)
        fclose(file);
    return read_bytes + written_bytes;
}

bool dpb_proc_read(const char *root, int32_t pid, struct dpb_proc *proc)
{
    char path[PATH_MAX], line[1024], state;
    unsigned long long user, system;
    int parent;
    snprintf(path, sizeof path, "%s/proc/%d/stat", root, pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    /* The name, in brackets, may hold anything. */
    const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    if (!name_end || sscanf(name_end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                            &state, &parent, &user, &system) != 4)
        return false;
    proc->state = state;
    proc->parent = parent;
    proc->cpu_ns = (int64_t)(user + system) * dpb_proc_tick_ns();
    proc->io_bytes = read_io(root, pid);
    return true;
}

bool dpb_proc_has_variable(const char *root, int32_t pid, const char *name)
{
    char path[PATH_MAX], *variable = NULL;
    size_t capacity = 0, length = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/%d/environ", root, pid);
    FILE *file = fopen(path, "re");
    while (file && !found && getdelim(&variable, &capacity, '\0', file) > 0)
        found = strncmp(variable, name, length) == 0 && variable[length] == '=';
    free(variable);
    if (file)
        fclose(file);
    return found;
}

bool dpb_proc_sleeps_in(const char *root, int32_t pid, char function[DPB_PROC_FUNCTION_BYTES])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/%d/wchan", root, pid);
    FILE *file = fopen(path, "re");
    bool told = file && fgets(function, DPB_PROC_FUNCTION_BYTES, file);
    if (file)
        fclose(file);
    return told && strcmp(function, "0") != 0;
}

uint64_t dpb_proc_number(const char *directory, const char *file_name, const char *name)
{
    char path[PATH_MAX + 64], line[256], found[64];
    unsigned long long value;
    uint64_t result = UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", directory, file_name);
    FILE *file = fopen(path, "re");
    while (file && result == UINT64_MAX && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llu", found, &value) == 2 && strcmp(found, name) == 0)
            result = value;
    if (file)
        fclose(file);
    return result;
}
