/* printed.c - see printed.h. */
#include "lib/printed.h"

#include <stdlib.h>

#include "lib/test.h"

char *printed_as(const json_t *document, print_form *form)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    form(document, out);
    fclose(out);
    return own_memory(text, free);
}
