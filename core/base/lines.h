/*
 * lines.h - the lines of a text file that a user has written: settings, times.
 *
 * A byte order mark, the ends of any system, blanks around a line, blank lines and comments are
 * left out. A comment begins with `;` or `#` at a line's beginning, or with `;` behind a blank.
 */
#ifndef DPB_CORE_BASE_LINES_H
#define DPB_CORE_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "dpbench/status.h"

#define DPB_BLANKS " \t\v\f\r"

struct dpb_lines {
    const char *path;
    FILE *file;        /* @owned */
    int number;        /* of the line that was read last */
    dpb_status status; /* of the first failure, which is told as PATH:NUMBER */
};

/* `path`: @borrowed. `status` says if it cannot be opened; dpb_lines_next returns false then. */
struct dpb_lines dpb_lines_open(const char *path);
/* Puts the next line into `text`. False: there is none, or `status` says that the file cannot be
 * read, is no text, or has a line of more than size - 1 bytes without its comment. */
bool dpb_lines_next(struct dpb_lines *lines, char *text, size_t size);
void dpb_lines_close(struct dpb_lines *lines);

/* Cuts blanks from both ends of [begin, end), in place. */
char *dpb_trim(char *begin, char *end);

#endif
