/* cmd_report.c - `dpbench report [--markdown | --csv | --html FILE] RESULT.json...`: kept results
 * as tables or as a page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/forms.h"
#include "study/html.h"
#include "study/json.h"
#include "study/result.h"
#include "study/sweep.h"

static dpb_status read_printable(const char *path, json_t **document)
{
    json_t *read = NULL;
    DPB_TRY(dpb_result_read(path, &read));
    *document = dpb_json_printable(read);
    json_decref(read);
    return *document ? DPB_OK : dpb_fail(DPB_NO_MEMORY, "out of memory");
}

typedef void print_form(const json_t *document, FILE *out);

/* Prints the table of the run or sweep again, or a sweep's in another form. */
static dpb_status print(const char *path, print_form *form)
{
    json_t *document = NULL;
    DPB_TRY(read_printable(path, &document));
    bool is_sweep = strcmp(dpb_json_text(document, "schema", ""), "dpbench.sweep/1") == 0;
    dpb_status status = DPB_OK;
    if (!form)
        printf("%s\n", path);
    if (form && !is_sweep)
        status =
            dpb_fail(DPB_USAGE, "%s: a run has no rows; --markdown and --csv are for sweeps", path);
    else if (is_sweep)
        (form ? form : dpb_sweep_print)(document, stdout);
    else
        dpb_result_print(document, stdout);
    json_decref(document);
    return status;
}

/* NULL: no such option. */
static print_form *form_of(const char *option)
{
    return strcmp(option, "--markdown") == 0 ? dpb_sweep_markdown
           : strcmp(option, "--csv") == 0    ? dpb_sweep_csv
                                             : NULL;
}

/* One document after the other: a long run takes much memory. */
static dpb_status write_page(const char *const *paths, int n, const char *file)
{
    struct dpb_html *html = dpb_html_create();
    dpb_status status = DPB_OK;
    for (int i = 0; i < n && html && status == DPB_OK; i++) {
        json_t *document = NULL;
        status = read_printable(paths[i], &document);
        if (status == DPB_OK)
            dpb_html_add(html, paths[i], document);
        json_decref(document);
    }
    size_t length = 0;
    char *page = html && status == DPB_OK ? dpb_html_finish(html, &length) : NULL;
    dpb_html_destroy(html);
    if (status == DPB_OK)
        status = page ? dpb_result_write_page(page, length, file)
                      : dpb_fail(DPB_NO_MEMORY, "out of memory");
    if (status == DPB_OK)
        dpb_log(DPB_LOG_INFO, "report: %s", file);
    free(page);
    return status;
}

static bool ends_on(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);
    return length > n && strcmp(text + length - n, end) == 0;
}

/* `--html *.json` must not put a page in the place of the first result. */
static dpb_status check_page(const struct dpb_command *self, const char *file)
{
    if (!file || !(ends_on(file, ".html") || ends_on(file, ".htm")))
        return dpb_usage_error(self, "--html needs the name of a file that ends on .html");
    return dpb_result_probe_file("--html", file);
}

static dpb_status report(const struct dpb_command *self, const char **paths, int argc, char **argv)
{
    const char *html = NULL;
    print_form *form = NULL;
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--html") == 0) {
            if (html)
                return dpb_usage_error(self, "one page at a time: --html twice");
            html = i + 1 < argc ? argv[++i] : NULL;
            DPB_TRY(check_page(self, html));
        } else if (form_of(argv[i])) {
            if (form && form != form_of(argv[i]))
                return dpb_usage_error(self, "one form at a time: --markdown or --csv");
            form = form_of(argv[i]);
        } else if (argv[i][0] == '-') {
            return dpb_usage_error(self, "unknown option '%s'", argv[i]);
        } else {
            paths[n++] = argv[i];
        }
    }
    if (n == 0)
        return dpb_usage_error(self, "which results? give their files");
    if (html && form)
        return dpb_usage_error(self, "one form at a time: --html beside --markdown or --csv");
    if (html)
        return write_page(paths, n, html);
    for (int i = 0; i < n; i++) {
        if (i > 0)
            putchar('\n');
        DPB_TRY(print(paths[i], form));
    }
    return DPB_OK;
}

int dpb_command_report(const struct dpb_command *self, int argc, char **argv)
{
    const char **paths = calloc((size_t)argc + 1, sizeof *paths);
    dpb_status status =
        paths ? report(self, paths, argc, argv) : dpb_fail(DPB_NO_MEMORY, "out of memory");
    free(paths);
    return dpb_status_exit_code(status);
}
