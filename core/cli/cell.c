/* cell.c - see cell.h. */
#include "cli/cell.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

bool dpb_cell_is(const char *word)
{
    return strcmp(word, "-") == 0 || word[0] == '{';
}

dpb_status dpb_cell_read(const char *word, struct dpb_arguments *arguments)
{
    json_error_t error;
    arguments->cell = word[0] == '{' ? json_loads(word, 0, &error) : json_loadf(stdin, 0, &error);
    if (!dpb_json_is(arguments->cell, "schema", "dpbench.cell/1"))
        return dpb_fail(DPB_USAGE, "-c -: standard input is no request of a sweep; give a file");
    const json_t *orders = json_object_get(arguments->cell, "orders");
    if (orders && fcntl((int)json_integer_value(orders), F_SETFD, FD_CLOEXEC) != 0)
        return dpb_fail(DPB_USAGE, "-c -: the request's orders: %m");
    dpb_warnings_once(true);
    dpb_warned_from_json(json_object_get(arguments->cell, "warned"));
    return dpb_config_from_json(arguments->config, json_object_get(arguments->cell, "config"),
                                "the cell's configuration");
}

void dpb_cell_place(const json_t *cell, struct dpb_live_place *place)
{
    place->label = dpb_json_text(cell, "label", place->label);
    place->ended_s = json_number_value(json_object_get(cell, "ended_s"));
    place->n_ended = (uint64_t)json_integer_value(json_object_get(cell, "n_ended"));
    place->n_left = (uint64_t)json_integer_value(json_object_get(cell, "n_left"));
    place->orders = (int)json_integer_value(json_object_get(cell, "orders"));
    if (place->orders > 0) /* the sweep shows the blocks */
        place->label = "";
}

void dpb_cell_print(json_t *document)
{
    json_object_set_new(document, "warned", dpb_warned_to_json());
    dpb_stdout_back();
    json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    putchar('\n');
}

json_t *dpb_warned_to_json(void)
{
    json_t *warned = json_object();
    const char *code;
    size_t n;
    for (size_t i = 0; dpb_warned_at(i, &code, &n); i++)
        json_object_set_new(warned, code, json_integer((json_int_t)n));
    return warned;
}

void dpb_warned_from_json(const json_t *warned)
{
    dpb_each_member(warned, code, n)
        dpb_warned_set(code, (size_t)json_integer_value(n));
}
