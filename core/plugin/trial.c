/* trial.c - see trial.h. */
#include "plugin/trial.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"

#define LIMIT_NS INT64_C(5000000000)

/* ---- the file ------------------------------------------------------------------------------ */

/* The end of the last segment; 0: this is no ELF file of 64 bits. */
static uint64_t end_of_segments(int fd)
{
    Elf64_Ehdr head;
    uint64_t end = 0;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(Elf64_Phdr))
        return 0;
    end = head.e_phoff + (uint64_t)head.e_phnum * sizeof(Elf64_Phdr);
    for (uint64_t i = 0; i < head.e_phnum; i++) {
        Elf64_Phdr part;
        if (pread(fd, &part, sizeof part, (off_t)(head.e_phoff + i * sizeof part)) !=
            (ssize_t)sizeof part)
            return end;
        if (part.p_type == PT_LOAD && part.p_offset + part.p_filesz > end)
            end = part.p_offset + part.p_filesz;
    }
    return end;
}

bool dpb_trial_look(const char *path, char *reason, size_t size)
{
    struct stat info;
    reason[0] = '\0';
    /* Without waiting for the other end of a pipe. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        snprintf(reason, size, "%s", strerror(errno));
    else if (!S_ISREG(info.st_mode))
        snprintf(reason, size, "it is no regular file");
    else if (end_of_segments(fd) > (uint64_t)info.st_size)
        snprintf(reason, size,
                 "it is truncated: its segments need %" PRIu64 " bytes, and it has %" PRIu64,
                 end_of_segments(fd), (uint64_t)info.st_size);
    if (fd >= 0)
        close(fd);
    return reason[0] == '\0';
}

/* ---- loading ------------------------------------------------------------------------------- */

enum { LOADED = 86 }; /* no status that a constructor would choose */

/* In the child. */
static void load(const char *path, const struct dpb_host *host, int done)
{
    const int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && null_fd >= 0; fd++)
        dup2(null_fd, fd);
    const struct dpb_plugin *(*entry)(const struct dpb_host *) = NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle)
        *(void **)&entry = dlsym(handle, "dpb_plugin_entry");
    if (entry)
        (void)entry(host);
    (void)!write(done, "", 1);
    _exit(LOADED);
}

static void judge(int status, char *reason, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(reason, size, "loading it ends the process: signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != LOADED)
        snprintf(reason, size, "loading it ends the process: exit status %d", WEXITSTATUS(status));
}

bool dpb_trial_load(const char *path, const struct dpb_host *host, char *reason, size_t size)
{
    const struct dpb_deadline deadline = dpb_deadline_in(LIMIT_NS);
    int ends[2], status = 0;
    reason[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return true; /* it is loaded as it is */
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        load(path, host, ends[1]);
    close(ends[1]);
    struct pollfd said = {.fd = ends[0], .events = POLLIN};
    while (child > 0 && poll(&said, 1, dpb_deadline_look_ms(deadline)) <= 0 &&
           !dpb_deadline_passed(deadline))
        ;
    if (child > 0 && said.revents == 0) {
        kill(child, SIGKILL);
        snprintf(reason, size, "loading it takes more than %d s", (int)(LIMIT_NS / 1000000000));
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && reason[0] == '\0')
        judge(status, reason, size);
    close(ends[0]);
    return reason[0] == '\0';
}
