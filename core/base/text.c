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

/* False: it did not fit, and is cut. */
static bool add(struct dpb_text *text, const char *format, va_list list)
{
    int n = vsnprintf(text->text + text->length, text->capacity - text->length, format, list);
    text->length += n > 0 ? (size_t)n : 0;
    if (text->length < text->capacity)
        return true;
    text->length = text->capacity - 1;
    return false;
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
    const size_t before = text->length;
    va_list list;
    if (text->full)
        return;
    if (before > 0)
        dpb_text_add(text, "%s", gap);
    va_start(list, format);
    text->full = !add(text, format, list);
    va_end(list);
    if (!text->full || before == 0)
        return;
    text->length = before;
    text->text[before] = '\0';
    if (text->capacity - before > strlen(" ..."))
        dpb_text_add(text, " ...");
}

void dpb_text_mark_cut(char *text, size_t size)
{
    const size_t most = size - sizeof "...";
    size_t end = most;
    while (end > 0 && most - end < 3 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, "...", sizeof "...");
}

void dpb_text_format(char *text, size_t size, const char *format, va_list arguments)
{
    int length = vsnprintf(text, size, format, arguments);
    if (length < 0)
        snprintf(text, size, "(message cannot be formatted: %s)", format);
    else if ((size_t)length >= size)
        dpb_text_mark_cut(text, size);
}

bool dpb_begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool dpb_ends_on(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

bool dpb_text_lists(const char *list, const char *separators, const char *word, size_t n)
{
    for (const char *at = list; *at != '\0';) {
        const size_t length = strcspn(at, separators);
        if (length == n && strncmp(at, word, n) == 0)
            return true;
        at += length;
        at += strspn(at, separators);
    }
    return false;
}
