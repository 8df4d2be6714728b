/* link_rows.c - see link_rows.h. */
#include "lib/link_rows.h"

#include <string.h>

#include "lib/command.h"
#include "lib/test.h"

const json_t *links_of(const json_t *document, const char *name)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_at(document, "devices"), i, row)
    {
        if (strcmp(json_text_at(row, "name"), name) == 0)
            return row;
    }
    fail_msg("there is no '%s'", name);
    return NULL;
}

void expect_rates(const json_t *points, size_t n)
{
    double bytes = 1024;
    size_t i;
    const json_t *point;
    assert_int_equal(json_array_size(points), n);
    json_array_foreach(points, i, point)
    {
        assert_true(json_number_at(point, "bytes") == bytes);
        assert_true(json_number_at(point, "bytes_per_s.least") > 0);
        assert_true(json_number_at(point, "bytes_per_s.median") >=
                    json_number_at(point, "bytes_per_s.least"));
        assert_true(json_number_at(point, "bytes_per_s.most") >=
                    json_number_at(point, "bytes_per_s.median"));
        bytes *= 4;
    }
}
