/*
 * read_at.h - reads a part of a file, in as many reads as that takes. For data plugins.
 */
#ifndef DPB_PLUGINS_FILES_READ_AT_H
#define DPB_PLUGINS_FILES_READ_AT_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "dpbench/plugin.h"

/* data.direct of a source that reads its files while it runs. */
#define DIRECT_OPTION(STRUCT, MEMBER)                                      \
    DPB_OPTION_ROW("direct", BOOL, NULL, "no", 0, 0, NULL, STRUCT, MEMBER, \
                   "Files are read past the system's cache (O_DIRECT), as if it were cold.", NULL)

/* For reading; a pipe must not block. `direct`: past the system's cache. */
static inline int open_to_read(const char *path, bool direct)
{
    enum { FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK };
    return direct ? open(path, FLAGS | O_DIRECT) : open(path, FLAGS);
}

/* Whether open_to_read has failed because the file system has no direct reads; then fails. */
static inline bool lacks_direct(const struct dpb_host *host, const char *path, bool direct,
                                int error)
{
    if (direct && error == EINVAL)
        host->fail(DPB_UNSUPPORTED,
                   "%s: data.direct = yes, and this file system has no direct reads (O_DIRECT); "
                   "leave data.direct out, or drop the system's cache before the run",
                   path);
    return direct && error == EINVAL;
}

static inline ssize_t read_once(int fd, void *to, size_t n, uint64_t at)
{
    ssize_t some;
    do {
        some = pread(fd, to, n, (off_t)at);
    } while (some < 0 && errno == EINTR);
    return some;
}

/* Direct reads are of whole blocks into memory that is aligned to blocks: so through memory of this
 * function. A block of 4 KiB is one on every disk. */
static inline bool read_direct_at(int fd, void *to, size_t n, uint64_t at, size_t *got)
{
    enum { BLOCK = 4096, ROOM = 64 * BLOCK };
    _Alignas(BLOCK) uint8_t blocks[ROOM];
    size_t some = 1;
    for (*got = 0; *got < n && some > 0; *got += some) {
        const uint64_t from = at + *got, begin = from / BLOCK * BLOCK;
        const size_t before = (size_t)(from - begin), left = n - *got;
        const size_t wanted = left < ROOM - before ? before + left : ROOM;
        const ssize_t read = read_once(fd, blocks, (wanted + BLOCK - 1) / BLOCK * BLOCK, begin);
        if (read < 0)
            return false;
        some = (size_t)read < wanted ? (size_t)read : wanted;
        some = some > before ? some - before : 0;
        memcpy((uint8_t *)to + *got, blocks + before, some);
    }
    return true;
}

/* Reads up to n bytes, from byte `at` on. *got is less if the file ends or a read fails. False: a
 * read has failed, see errno. */
static inline bool read_at(int fd, void *to, size_t n, uint64_t at, size_t *got)
{
    ssize_t some = 1;
    if (fcntl(fd, F_GETFL) & O_DIRECT)
        return read_direct_at(fd, to, n, at, got);
    for (*got = 0; *got < n && some != 0; *got += (size_t)some) {
        some = read_once(fd, (uint8_t *)to + *got, n - *got, at + *got);
        if (some < 0)
            return false;
    }
    return true;
}

#endif
