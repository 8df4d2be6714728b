/* markup.c - see markup.h. */
#include "study/page/markup.h"

#include <stdarg.h>
#include <string.h>

static void write_text(const char *text, FILE *out)
{
    static const char marks[] = "&<>\"'";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    for (; *text != '\0'; text++) {
        const char *mark = strchr(marks, *text);
        if (mark)
            fputs(entities[mark - marks], out);
        else
            fputc(*text, out);
    }
}

void dpb_markup(FILE *out, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    for (const char *at; (at = strstr(format, "%s")) != NULL; format = at + 2) {
        fwrite(format, 1, (size_t)(at - format), out);
        write_text(va_arg(list, const char *), out);
    }
    va_end(list);
    fputs(format, out);
}
