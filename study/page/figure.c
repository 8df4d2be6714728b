/* figure.c - see figure.h. */
#include "study/page/figure.h"

#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

extern char **environ;

enum { IN, OUT, ERR, STREAMS };

/* The text behind a descriptor. @owned; NULL: out of memory, or it cannot be read. */
static char *text_of(int fd, size_t *length)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    char *text = size >= 0 ? calloc((size_t)size + 1, 1) : NULL;
    *length = size > 0 ? (size_t)size : 0;
    for (size_t at = 0; text && at < *length;) {
        const ssize_t n = pread(fd, text + at, *length - at, (off_t)at);
        if (n <= 0) {
            free(text);
            return NULL;
        }
        at += (size_t)n;
    }
    return text;
}

static bool write_whole(int fd, const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        const ssize_t n = write(fd, text + at, length - at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return lseek(fd, 0, SEEK_SET) == 0;
}

/* *code: the exit code; -1 after a signal. */
static dpb_status run(const char *script, const char *name, const int fds[STREAMS], int *code)
{
    char *const words[] = {"node", (char *)script, (char *)name, NULL};
    posix_spawn_file_actions_t files;
    pid_t pid;
    int end = -1;
    posix_spawn_file_actions_init(&files);
    for (int i = 0; i < STREAMS; i++)
        posix_spawn_file_actions_adddup2(&files, fds[i], i);
    const int error = posix_spawnp(&pid, words[0], &files, NULL, words, environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0)
        return dpb_fail(
            DPB_UNSUPPORTED,
            "--figure draws by node, which does not start: %s; install Node.js, or save "
            "the figure from the page of --html",
            strerror(error));
    while (waitpid(pid, &end, 0) < 0 && errno == EINTR)
        continue;
    *code = WIFEXITED(end) ? WEXITSTATUS(end) : -1;
    return *code == 127 ? dpb_fail(DPB_UNSUPPORTED, "--figure draws by node, which did not start")
                        : DPB_OK;
}

static dpb_status take(const char *name, int code, const int fds[STREAMS], char **svg,
                       size_t *svg_length)
{
    size_t length;
    char *said = text_of(fds[ERR], &length), *made = text_of(fds[OUT], svg_length);
    dpb_status status = dpb_allocated(said && made);
    if (status == DPB_OK && code == 2)
        status = dpb_fail(DPB_USAGE, "--figure %s.svg: there is no such figure; there are: %s",
                          name, said);
    else if (status == DPB_OK && (code != 0 || *svg_length == 0))
        status = dpb_fail(DPB_FAILED, "--figure: node ended with exit code %d: %s", code, said);
    free(said);
    if (status != DPB_OK)
        free(made);
    else
        *svg = made;
    return status;
}

dpb_status dpb_figure_make(const char *script, const char *name, const char *page, size_t length,
                           char **svg, size_t *svg_length)
{
    int fds[STREAMS], code = 0;
    bool open = true;
    for (int i = 0; i < STREAMS; i++) {
        fds[i] = memfd_create("figure", MFD_CLOEXEC);
        open &= fds[i] >= 0;
    }
    dpb_status status = open && write_whole(fds[IN], page, length)
                            ? DPB_OK
                            : dpb_fail(DPB_IO, "--figure: no memory file: %s", strerror(errno));
    DPB_THEN(status, run(script, name, fds, &code));
    DPB_THEN(status, take(name, code, fds, svg, svg_length));
    for (int i = 0; i < STREAMS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status;
}
