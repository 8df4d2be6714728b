/* text.c - see text.h. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct dpb_text dpb_text_in(char *array, size_t capacity)
{
    array[0] = '\0';
    return (struct dpb_text){.text = array, .capacity = capacity};
}

static void add(struct dpb_text *text, const char *format, va_list list)
{
    int n = vsnprintf(text->text + text->length, text->capacity - text->length, format, list);
    text->length += n > 0 ? (size_t)n : 0;
    if (text->length >= text->capacity)
        text->length = text->capacity - 1;
}

void dpb_text_add(struct dpb_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add(text, format, list);
    va_end(list);
}

void dpb_text_item(struct dpb_text *text, const char *gap, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (text->length > 0)
        dpb_text_add(text, "%s", gap);
    add(text, format, list);
    va_end(list);
}

bool dpb_ends_on(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}
