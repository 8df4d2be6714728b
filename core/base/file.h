/*
 * file.h - what files of all kinds need.
 */
#ifndef DPB_CORE_BASE_FILE_H
#define DPB_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all bytes. False: see errno. */
bool dpb_write_all(int fd, const void *bytes, size_t n);

#endif
