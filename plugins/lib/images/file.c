/*
 * file.c - one file, read whole; and the memory that it is read into.
 *
 * Files are read, not mapped: a file that is cut while it is mapped ends the process.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/files/read_at.h"
#include "images.h"

bool buffer_reserve(struct buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity)
        return true;
    size_t capacity = bytes + bytes / 2; /* files differ: few of them shall be the largest so far */
    buffer_release(buffer);
    buffer->bytes = image_host->alloc(capacity);
    buffer->capacity = buffer->bytes ? capacity : 0;
    return buffer->bytes;
}

void buffer_release(struct buffer *buffer)
{
    image_host->release(buffer->bytes, buffer->capacity);
    *buffer = (struct buffer){.bytes = NULL};
}

dpb_status grow_memory(void **memory, uint64_t *capacity, uint64_t wanted, size_t unit)
{
    if (wanted <= *capacity)
        return DPB_OK;
    uint64_t larger = *capacity < 512 ? 1024 : *capacity * 2;
    if (larger < wanted)
        larger = wanted;
    void *moved = image_host->alloc((size_t)larger * unit);
    if (!moved)
        return DPB_NO_MEMORY;
    if (*memory)
        memcpy(moved, *memory, (size_t)*capacity * unit);
    image_host->release(*memory, (size_t)*capacity * unit);
    *memory = moved;
    *capacity = larger;
    return DPB_OK;
}

/* Whether the machine lacks descriptors or memory, rather than the file being unreadable. */
static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

static verdict blame(const char *path, const char *what, int error, char reason[REASON_BYTES])
{
    char text[PATH_BYTES];
    snprintf(reason, REASON_BYTES, "%s: %s", what, strerror(error));
    if (!is_shortage(error))
        return BAD;
    image_host->fail(DPB_IO, "%s: %s", printable(path, text), reason);
    return BROKEN;
}

static verdict read_open_file(int fd, const char *path, uint64_t max_bytes, struct buffer *buffer,
                              size_t *n, char reason[REASON_BYTES])
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return blame(path, "cannot be looked at", errno, reason);
    if (!S_ISREG(status.st_mode)) {
        snprintf(reason, REASON_BYTES, "not a regular file");
        return BAD;
    }
    if ((uint64_t)status.st_size > max_bytes) {
        snprintf(reason, REASON_BYTES, "%" PRIu64 " bytes are more than data.max_pixels make",
                 (uint64_t)status.st_size);
        return BAD;
    }
    if (!buffer_reserve(buffer, (size_t)status.st_size + 1))
        return BROKEN;
    if (!read_at(fd, buffer->bytes, (size_t)status.st_size, 0, n))
        return blame(path, "cannot be read", errno, reason);
    return GOOD;
}

verdict read_image_file(const char *path, bool direct, uint64_t max_bytes, struct buffer *buffer,
                        size_t *n, char reason[REASON_BYTES])
{
    int fd = open_to_read(path, direct);
    if (fd < 0 && lacks_direct(image_host, path, direct, errno))
        return BROKEN;
    if (fd < 0)
        return blame(path, "cannot be opened", errno, reason);
    verdict result = read_open_file(fd, path, max_bytes, buffer, n, reason);
    close(fd);
    return result;
}
