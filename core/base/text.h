/*
 * text.h - a text that is composed in an array of fixed size and cut at its end. A list keeps whole
 * the items that fit; " ..." replaces the others.
 */
#ifndef DPB_CORE_BASE_TEXT_H
#define DPB_CORE_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "dpbench/host.h"

struct dpb_text {
    char *text; /* @borrowed; always ended by NUL */
    size_t capacity, length;
    bool full; /* an item was left out, and so are all after it */
};

/* An empty text in the array; capacity >= 1. */
struct dpb_text dpb_text_in(char *array, size_t capacity);
DPB_PRINTF(2, 3) void dpb_text_add(struct dpb_text *text, const char *format, ...);
/* Adds an item of a list, with `gap` before it unless it is the first. A first item that does not
 * fit is cut. */
DPB_PRINTF(3, 4)
void dpb_text_item(struct dpb_text *text, const char *gap, const char *format, ...);

/* Formats into `text`; the end of a message that does not fit says so. */
DPB_PRINTF(3, 0)
void dpb_text_format(char *text, size_t size, const char *format, va_list arguments);
/* The same for a function of variadic arguments. */
#define DPB_PRINT_ARGUMENTS(text, size, format)          \
    do {                                                 \
        va_list arguments_;                              \
        va_start(arguments_, format);                    \
        dpb_text_format(text, size, format, arguments_); \
        va_end(arguments_);                              \
    } while (0)

/* The last characters of a text that was cut to `size` bytes become "...". No character of UTF-8 is
 * cut in two. */
void dpb_text_mark_cut(char *text, size_t size);

/* Whether the text begins with `start`. */
bool dpb_begins_with(const char *text, const char *start);
/* Whether the text is longer than `end` and ends in it. */
bool dpb_ends_on(const char *text, const char *end);
/* Whether the list has a word of n bytes, between `separators`: "cpuacct,cpu" has "cpu". */
bool dpb_text_lists(const char *list, const char *separators, const char *word, size_t n);

#endif
