/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

bool dpb_write_all(int fd, const void *bytes, size_t n)
{
    for (const char *next = bytes; n > 0;) {
        const ssize_t written = write(fd, next, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        next += written;
        n -= (size_t)written;
    }
    return true;
}

int dpb_memory_file(const char *name, size_t bytes)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || (ftruncate(fd, (off_t)bytes) == 0 &&
                   fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0))
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int kept_stdout = -1;

void dpb_stdout_aside(void)
{
    fflush(stdout);
    if (kept_stdout < 0)
        kept_stdout = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, DPB_FILES_OWN);
    if (kept_stdout >= 0)
        dup2(STDERR_FILENO, STDOUT_FILENO);
}

void dpb_stdout_back(void)
{
    if (kept_stdout < 0)
        return;
    fflush(stdout);
    dup2(kept_stdout, STDOUT_FILENO);
    close(kept_stdout);
    kept_stdout = -1;
}

void dpb_files_allow(size_t n)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)n + DPB_FILES_OWN;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* The place of this program's file; NULL: it is not known. *name gets the file's name, which is cut
 * off. */
static char *find_own(char *place, size_t size, char **name)
{
    const ssize_t length = readlink("/proc/self/exe", place, size - 1);
    if (length <= 0 || (size_t)length == size - 1)
        return NULL;
    place[length] = '\0';
    char *slash = strrchr(place, '/');
    if (!slash)
        return NULL;
    *slash = '\0';
    *name = slash + 1;
    return slash;
}

bool dpb_own_directory(char *directory, size_t size)
{
    static const char programs[] = "/libexec/dpbench", place[] = "/bin";
    char *name, *end = find_own(directory, size, &name);
    if (!end)
        return false;
    const size_t n = (size_t)(end - directory);
    if (n >= sizeof programs - 1 && strcmp(end - (sizeof programs - 1), programs) == 0)
        memcpy(end - (sizeof programs - 1), place, sizeof place);
    return true;
}

bool dpb_own_program(char *path, size_t size)
{
    static const char command[] = "dpbench-", itself[] = "/dpbench";
    char *name;
    if (!find_own(path, size, &name))
        return false;
    if (strncmp(name, command, sizeof command - 1) != 0) {
        snprintf(path, size, "/proc/self/exe"); /* also after the file was replaced */
        return true;
    }
    if (!dpb_own_directory(path, size) || strlen(path) + sizeof itself > size)
        return false;
    strcat(path, itself);
    return true;
}
