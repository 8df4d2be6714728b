/*
 * file.h - a complete write to files of all kinds; how many files may be open; where dpbench is.
 */
#ifndef DPB_CORE_BASE_FILE_H
#define DPB_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all bytes to a file or a blocking socket. False: see errno. dpbench ignores SIGPIPE, so a
 * closed socket is an error, too. */
bool dpb_write_all(int fd, const void *bytes, size_t n);

/* Raises the number of files that this process may open, to `n` beside DPB_FILES_OWN others: the
 * limit in many shells is below the limit that a process may set. A later failure reports a
 * shortage that remains. */
enum { DPB_FILES_OWN = 64 };
void dpb_files_allow(size_t n);

/* The directory of dpbench: that of this program's file, or, where this is a command in
 * PREFIX/libexec/dpbench, PREFIX/bin. False: the path is longer than `size`, or /proc is not
 * mounted. */
bool dpb_own_directory(char *directory, size_t size);
/* The file of dpbench: this program's own, or, where this is a command (dpbench-NAME), that in
 * dpbench's directory, which may be missing. */
bool dpb_own_program(char *path, size_t size);

#endif
