/* published.c - see published.h. */
#include "study/document/published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/json.h"

static const json_t *line_of(const json_t *document, const json_t *row)
{
    return dpb_json_find(json_object_get(document, "published"), "cell",
                         json_object_get(row, "cell"));
}

static bool same_place(const json_t *a, const json_t *b)
{
    return dpb_json_same(json_object_get(a, "source"), json_object_get(b, "source")) &&
           dpb_json_same(json_object_get(a, "hardware"), json_object_get(b, "hardware"));
}

double dpb_published_speedup(const json_t *document, const json_t *row, const json_t *over)
{
    const json_t *own = line_of(document, row), *base = own ? line_of(document, over) : NULL;
    return base && same_place(own, base)
               ? dpb_json_number(own, "figure") / dpb_json_number(base, "figure")
               : NAN;
}

/* ", here with run.batch = 32 by the command line": the figures are of the file's settings. */
static void note_changes(const json_t *document, FILE *out)
{
    const char *gap = " Here the command line set ";
    dpb_each_member(json_object_get(document, "config"), section, settings) {
        if (strcmp(section, "sweep") == 0)
            continue; /* the rows show its axes */
        dpb_each_member(settings, key, setting) {
            if (!dpb_json_is(setting, "origin", DPB_COMMAND_LINE))
                continue;
            fprintf(out, "%s%s.%s = %s", gap, section, key, dpb_json_text(setting, "value", "?"));
            gap = ", ";
        }
    }
    fputs(gap[0] == ',' ? ".\n" : "\n", out);
}

void dpb_published_note(const json_t *document, FILE *out)
{
    const json_t *lines = json_object_get(document, "published");
    if (json_array_size(lines) == 0)
        return;
    fputs("- publ., published: speedups by published figures, of other hardware: no pass or fail",
          out);
    dpb_each_item(lines, i, line) {
        bool known = false;
        for (size_t k = 0; k < i && !known; k++)
            known = same_place(line, json_array_get(lines, k));
        if (!known)
            fprintf(out, "; %s, on %s", dpb_json_text(line, "source", "?"),
                    dpb_json_text(line, "hardware", "?"));
    }
    fputs(".", out);
    note_changes(document, out);
}
