/* detach.c - see detach.h. */
#include "plugin/detach.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* `memory` is this process's: a read of it fails where an access would end the process. */
static void copy(uintptr_t begin, uintptr_t end, const char *rights, int memory)
{
    const size_t bytes = end - begin;
    const int protection = (rights[0] == 'r' ? PROT_READ : 0) |
                           (rights[1] == 'w' ? PROT_WRITE : 0) | (rights[2] == 'x' ? PROT_EXEC : 0);
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return;
    if (pread(memory, made, bytes, (off_t)begin) != (ssize_t)bytes ||
        mprotect(made, bytes, protection) != 0 ||
        mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)begin) == MAP_FAILED)
        munmap(made, bytes);
}

void dpb_detach(const char *path)
{
    char line[PATH_MAX + 128], rights[5];
    uintptr_t begin, end;
    int name = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    while (maps && fgets(line, sizeof line, maps)) {
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %n", &begin, &end, rights,
                   &name) == 3 &&
            strcmp(line + name, path) == 0)
            copy(begin, end, rights, memory);
    }
    if (maps)
        fclose(maps);
    if (memory >= 0)
        close(memory);
}
