/* printable.c - names of files in messages, and the host that takes these. */
#include <stdio.h>

#include "images.h"

const struct dpb_host *image_host;

/* Length of the UTF-8 sequence that begins here; 0: none does. */
static size_t utf8_length(const uint8_t *s)
{
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] > 0xf4 || (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    return n;
}

const char *printable(const char *name, char text[PATH_BYTES])
{
    size_t used = 0;
    for (const uint8_t *s = (const uint8_t *)name; *s && used < PATH_BYTES - 8;) {
        size_t n = *s < 0x20 || *s == 0x7f ? 0 : utf8_length(s);
        if (n == 0)
            used += (size_t)snprintf(text + used, PATH_BYTES - used, "\\x%02x", *s++);
        for (; n > 0; n--)
            text[used++] = (char)*s++;
    }
    text[used] = '\0';
    return text;
}
