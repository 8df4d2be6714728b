/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
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
