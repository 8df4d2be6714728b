/* proc.c - see proc.h. */
#include "machine/proc.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

int64_t dpb_proc_tick_ns(void)
{
    long per_s = sysconf(_SC_CLK_TCK);
    return 1000000000 / (per_s > 0 ? per_s : 100);
}

/* A path that is cut is still too long for the system, which refuses it. */
DPB_PRINTF(1, 0) static FILE *open_list(const char *format, va_list list)
{
    char path[PATH_MAX + 1];
    vsnprintf(path, sizeof path, format, list);
    return fopen(path, "re");
}

FILE *dpb_proc_open(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    FILE *file = open_list(format, list);
    va_end(list);
    return file;
}

static bool read_line(FILE *file, char *line, size_t size)
{
    const bool found = file && fgets(line, (int)size, file);
    if (found)
        line[strcspn(line, "\n")] = '\0';
    if (file)
        fclose(file);
    return found;
}

bool dpb_proc_line(char *line, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    FILE *file = open_list(format, list);
    va_end(list);
    return read_line(file, line, size);
}

bool dpb_proc_count(uint64_t *number, const char *format, ...)
{
    char line[64];
    va_list list;
    va_start(list, format);
    FILE *file = open_list(format, list);
    va_end(list);
    return read_line(file, line, sizeof line) && sscanf(line, "%" SCNu64, number) == 1;
}

static uint64_t read_io(const char *root, int32_t pid)
{
    char line[128];
    unsigned long long read_bytes = 0, written_bytes = 0;
    FILE *file = dpb_proc_open("%s/proc/%d/io", root, pid);
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
    char line[1024], state;
    unsigned long long user, system;
    int parent;
    if (!dpb_proc_line(line, sizeof line, "%s/proc/%d/stat", root, pid))
        return false;
    const char *name_end = strrchr(line, ')'); /* the name, in brackets, may hold anything */
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
    char *variable = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *file = dpb_proc_open("%s/proc/%d/environ", root, pid);
    while (file && !found && getdelim(&variable, &capacity, '\0', file) > 0)
        found = dpb_begins_with(variable, name) && variable[strlen(name)] == '=';
    free(variable);
    if (file)
        fclose(file);
    return found;
}

bool dpb_proc_sleeps_in(const char *root, int32_t pid, char function[DPB_PROC_FUNCTION_BYTES])
{
    return dpb_proc_line(function, DPB_PROC_FUNCTION_BYTES, "%s/proc/%d/wchan", root, pid) &&
           strcmp(function, "0") != 0;
}

uint64_t dpb_proc_number(const char *directory, const char *file_name, const char *name)
{
    char line[256], found[64];
    unsigned long long value;
    uint64_t result = UINT64_MAX;
    FILE *file = dpb_proc_open("%s/%s", directory, file_name);
    while (file && result == UINT64_MAX && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %llu", found, &value) == 2 && strcmp(found, name) == 0)
            result = value;
    if (file)
        fclose(file);
    return result;
}
