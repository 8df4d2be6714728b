/* lines.c - see lines.h. */
#include "base/lines.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

char *dpb_trim(char *begin, char *end)
{
    while (end > begin && strchr(DPB_BLANKS, end[-1]))
        end--;
    *end = '\0';
    return begin + strspn(begin, DPB_BLANKS);
}

struct dpb_lines dpb_lines_open(const char *path)
{
    struct dpb_lines lines = {.path = path, .file = fopen(path, "re")};
    if (!lines.file)
        lines.status = dpb_fail(DPB_USAGE, "%s: cannot be read: %s", path, strerror(errno));
    return lines;
}

void dpb_lines_close(struct dpb_lines *lines)
{
    if (lines->file)
        fclose(lines->file);
}

/* Byte by byte, to refuse a NUL and a line without end. False: the file has ended. */
static bool read_line(struct dpb_lines *lines, char *text, size_t size)
{
    size_t length = 0;
    bool comment = false;
    int c = getc(lines->file);
    if (c == EOF)
        return false;
    lines->number++;
    for (char before = ' '; c != EOF && c != '\n'; before = (char)c, c = getc(lines->file)) {
        if (c == '\0' || (c < ' ' && !strchr(DPB_BLANKS, c)) || c == 0x7f) {
            lines->status =
                dpb_fail(DPB_USAGE, "%s:%d: %s: this is not a text file", lines->path,
                         lines->number, c == '\0' ? "a NUL byte" : "a control character");
            return false;
        }
        comment |= (c == ';' && strchr(DPB_BLANKS, before)) || (c == '#' && length == 0);
        if (comment || (length == 0 && strchr(DPB_BLANKS, c)))
            continue;
        if (length + 1 == size) {
            lines->status = dpb_fail(DPB_USAGE, "%s:%d: the line is longer than %zu bytes",
                                     lines->path, lines->number, size - 1);
            return false;
        }
        text[length++] = (char)c;
        if (length == 3 && lines->number == 1 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
            length = 0;
            c = ' ';
        }
    }
    dpb_trim(text, text + length);
    return true;
}

bool dpb_lines_next(struct dpb_lines *lines, char *text, size_t size)
{
    while (lines->status == DPB_OK && read_line(lines, text, size))
        if (text[0] != '\0')
            return true;
    if (lines->status == DPB_OK && ferror(lines->file))
        lines->status = dpb_fail(DPB_USAGE, "%s: cannot be read: %s", lines->path, strerror(errno));
    return false;
}
