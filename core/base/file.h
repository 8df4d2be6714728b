/*
 * file.h - a complete write to files of all kinds.
 */
#ifndef DPB_CORE_BASE_FILE_H
#define DPB_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all bytes to a file or a blocking socket. False: see errno. dpbench ignores SIGPIPE, so a
 * closed socket is an error, too. */
bool dpb_write_all(int fd, const void *bytes, size_t n);

#endif
