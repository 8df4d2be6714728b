/*
 * read_at.h - reads a part of a file, in as many reads as that takes. For data plugins.
 */
#ifndef DPB_PLUGINS_DATA_READ_AT_H
#define DPB_PLUGINS_DATA_READ_AT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Reads up to n bytes, from byte `at` on. *got is less if the file ends or a read fails. False: a
 * read has failed, see errno. */
static inline bool read_at(int fd, void *to, size_t n, uint64_t at, size_t *got)
{
    ssize_t some = 1;
    for (*got = 0; *got < n && some != 0; *got += (size_t)some) {
        do {
            some = pread(fd, (uint8_t *)to + *got, n - *got, (off_t)(at + *got));
        } while (some < 0 && errno == EINTR);
        if (some < 0)
            return false;
    }
    return true;
}

#endif
