/*
 * store_frame.c - frames in and out of a byte stream.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "world/store.h"

enum { RECEIVE_BYTES = 64 * 1024 };

void dpb_buffer_free(struct dpb_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct dpb_buffer){0};
}

static bool reserve(struct dpb_buffer *buffer, size_t bytes)
{
    if (buffer->capacity - buffer->end >= bytes)
        return true;
    size_t used = buffer->end - buffer->begin;
    if (buffer->begin > 0) {
        memmove(buffer->data, buffer->data + buffer->begin, used);
        buffer->begin = 0;
        buffer->end = used;
    }
    if (buffer->capacity - used >= bytes)
        return true;
    size_t capacity = 2 * buffer->capacity > used + bytes ? 2 * buffer->capacity : used + bytes;
    uint8_t *data = realloc(buffer->data, capacity);
    if (!data)
        return false;
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

static void append(struct dpb_buffer *buffer, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(buffer->data + buffer->end, bytes, n);
    buffer->end += n;
}

bool dpb_buffer_add_frame(struct dpb_buffer *buffer, const struct dpb_frame *frame, const void *key,
                          const void *value)
{
    if (!reserve(buffer, sizeof *frame + frame->key_bytes + frame->value_bytes))
        return false;
    append(buffer, frame, sizeof *frame);
    append(buffer, key, frame->key_bytes);
    append(buffer, value, frame->value_bytes);
    return true;
}

dpb_frame_state dpb_buffer_frame(const struct dpb_buffer *buffer, struct dpb_frame *frame,
                                 const char **key, const void **value, char why[128])
{
    size_t used = buffer->end - buffer->begin;
    if (used < sizeof *frame)
        return DPB_FRAME_PARTIAL;
    const uint8_t *start = buffer->data + buffer->begin;
    memcpy(frame, start, sizeof *frame);
    if (frame->magic != DPB_STORE_MAGIC)
        snprintf(why, 128, "a frame begins with 0x%08x, not 0x%08x", frame->magic, DPB_STORE_MAGIC);
    else if (frame->op == 0 || frame->op >= DPB_FRAME_OPS)
        snprintf(why, 128, "unknown operation %u", frame->op);
    else if (frame->key_bytes > DPB_STORE_KEY_BYTES)
        snprintf(why, 128, "a key of %u bytes, at most %d are allowed", frame->key_bytes,
                 DPB_STORE_KEY_BYTES);
    else if (frame->value_bytes > DPB_STORE_VALUE_BYTES)
        snprintf(why, 128, "a value of %u bytes, at most %d are allowed", frame->value_bytes,
                 DPB_STORE_VALUE_BYTES);
    else if (used < sizeof *frame + frame->key_bytes + frame->value_bytes)
        return DPB_FRAME_PARTIAL;
    else {
        *key = (const char *)start + sizeof *frame;
        *value = start + sizeof *frame + frame->key_bytes;
        return DPB_FRAME_WHOLE;
    }
    return DPB_FRAME_MALFORMED;
}

void dpb_buffer_drop_frame(struct dpb_buffer *buffer, const struct dpb_frame *frame)
{
    buffer->begin += sizeof *frame + frame->key_bytes + frame->value_bytes;
    if (buffer->begin == buffer->end)
        buffer->begin = buffer->end = 0;
}

ssize_t dpb_buffer_receive(struct dpb_buffer *buffer, int fd)
{
    if (!reserve(buffer, RECEIVE_BYTES)) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t n;
    do
        n = recv(fd, buffer->data + buffer->end, RECEIVE_BYTES, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        buffer->end += (size_t)n;
    return n;
}

ssize_t dpb_buffer_send(struct dpb_buffer *buffer, int fd)
{
    ssize_t n;
    if (buffer->begin == buffer->end)
        return 0;
    do
        n = send(fd, buffer->data + buffer->begin, buffer->end - buffer->begin,
                 MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        buffer->begin += (size_t)n;
    if (buffer->begin == buffer->end)
        buffer->begin = buffer->end = 0;
    return n;
}
