/* cmd_report.c - `dpbench report`: kept results as one table, each for itself, in lines for a
 * program, as a table of the caller's choice, or as a page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"
#include "study/table/forms.h"
#include "study/page/html.h"
#include "base/json.h"
#include "study/table/merge.h"
#include "study/table/pivot.h"
#include "record/result.h"
#include "study/document/read.h"
#include "study/table/sweep_print.h"
#include "record/result_file.h"

/* The words of a `dpbench report`. */
struct request {
    const char **paths; /* @owned */
    int n;
    dpb_print_document *form;
    struct dpb_pivot pivot; /* rows: NULL: the table as it is */
    const char *page;
    bool each; /* one after the other, not merged */
};

/* Prints the table of a sweep again, or the output asked for instead. */
static dpb_status print_sweep(const struct request *request, const json_t *document)
{
    if (request->pivot.rows)
        return dpb_pivot_print(document, &request->pivot,
                               request->form == dpb_sweep_markdown ? DPB_PIVOT_MARKDOWN
                               : request->form == dpb_sweep_csv    ? DPB_PIVOT_CSV
                                                                   : DPB_PIVOT_TEXT,
                               stdout);
    (request->form ? request->form : dpb_sweep_print)(document, stdout);
    return DPB_OK;
}

/* A run is printed as it was; it has lines for a program, too, but no rows. */
static dpb_status print_run(const struct request *request, const char *path, json_t *document)
{
    const bool lines = request->form == dpb_runs_csv || request->form == dpb_steps_csv;
    if (request->pivot.rows || (request->form && !lines))
        return dpb_fail(DPB_USAGE,
                        "%s: a run has no rows; --markdown, --csv and --rows are for sweeps and "
                        "for several results",
                        path);
    if (!request->form) {
        dpb_result_print(document, stdout);
        return DPB_OK;
    }
    json_t *alone = json_pack("{s:[O]}", "runs", document);
    DPB_TRY(dpb_allocated(alone));
    request->form(alone, stdout);
    json_decref(alone);
    return DPB_OK;
}

static dpb_status print(const struct request *request, const char *path)
{
    json_t *document = NULL;
    DPB_TRY(dpb_result_read_printable(path, &document));
    json_t *name = dpb_json_file(path, strlen(path));
    if (!request->form && !request->pivot.rows)
        printf("%s\n", dpb_json_text(name, "", "?"));
    json_decref(name);
    dpb_status status = dpb_json_is(document, "schema", "dpbench.sweep/1")
                            ? print_sweep(request, document)
                            : print_run(request, path, document);
    json_decref(document);
    return status;
}

static dpb_status print_each(const struct request *request)
{
    for (int i = 0; i < request->n; i++) {
        if (i > 0)
            putchar('\n');
        DPB_TRY(print(request, request->paths[i]));
    }
    return DPB_OK;
}

/* The documents of all paths as one. */
static dpb_status merge(const struct request *request, json_t **document)
{
    struct dpb_compared *results = calloc((size_t)request->n + 1, sizeof *results);
    json_t *documents = json_array();
    dpb_status status = dpb_allocated(results && documents);
    for (int i = 0; i < request->n && status == DPB_OK; i++) {
        json_t *read = NULL;
        status = dpb_result_read_printable(request->paths[i], &read);
        json_array_append_new(documents, read);
        results[i] = (struct dpb_compared){request->paths[i], read};
    }
    DPB_THEN(status, dpb_merge(results, (size_t)request->n, document));
    json_decref(documents);
    free(results);
    return status;
}

static dpb_status print_merged(const struct request *request)
{
    json_t *document = NULL;
    DPB_TRY(merge(request, &document));
    dpb_status status = print_sweep(request, document);
    if (status == DPB_OK &&
        (request->pivot.rows || (request->form && request->form != dpb_sweep_markdown)))
        dpb_merge_notes(document, stderr); /* the table has no room for it */
    json_decref(document);
    return status;
}

/* NULL: no such option. */
static dpb_print_document *form_of(const char *option)
{
    return strcmp(option, "--markdown") == 0    ? dpb_sweep_markdown
           : strcmp(option, "--csv") == 0       ? dpb_sweep_csv
           : strcmp(option, "--csv=runs") == 0  ? dpb_runs_csv
           : strcmp(option, "--csv=steps") == 0 ? dpb_steps_csv
                                                : NULL;
}

/* Where the list behind this option goes; NULL: no such option. */
static const char **list_of(struct dpb_pivot *pivot, const char *option)
{
    return strcmp(option, "--rows") == 0     ? &pivot->rows
           : strcmp(option, "--cols") == 0   ? &pivot->columns
           : strcmp(option, "--values") == 0 ? &pivot->values
                                             : NULL;
}

/* One document after the other: a long run takes much memory. */
static dpb_status add_each(const struct request *request, struct dpb_html *html)
{
    dpb_status status = DPB_OK;
    for (int i = 0; i < request->n && status == DPB_OK; i++) {
        json_t *document = NULL;
        status = dpb_result_read_printable(request->paths[i], &document);
        if (status == DPB_OK)
            dpb_html_add(html, request->paths[i], document);
        json_decref(document);
    }
    return status;
}

/* The merged table stands before the results. */
static dpb_status add_merged(const struct request *request, struct dpb_html *html)
{
    json_t *document = NULL;
    if (request->n == 1 || request->each)
        return DPB_OK;
    DPB_TRY(merge(request, &document));
    dpb_html_add(html, "all results", document);
    json_decref(document);
    return DPB_OK;
}

static dpb_status write_page(const struct request *request)
{
    struct dpb_html *html = dpb_html_create();
    dpb_status status = dpb_allocated(html);
    DPB_THEN(status, add_merged(request, html));
    DPB_THEN(status, add_each(request, html));
    size_t length = 0;
    char *page = html && status == DPB_OK ? dpb_html_finish(html, &length) : NULL;
    dpb_html_destroy(html);
    DPB_THEN(status, dpb_allocated(page));
    DPB_THEN(status, dpb_result_write_page(page, length, request->page));
    if (status == DPB_OK)
        dpb_log(DPB_LOG_INFO, "report: %s", request->page);
    free(page);
    return status;
}

/* `--html *.json` must not put a page in the place of the first result. */
static dpb_status check_page(const struct dpb_command *self, const char *file)
{
    if (!file || !(dpb_ends_on(file, ".html") || dpb_ends_on(file, ".htm")))
        return dpb_usage_error(self, "--html needs the name of a file that ends on .html");
    return dpb_result_probe_file("--html", file);
}

static dpb_status check(const struct dpb_command *self, const struct request *request)
{
    const struct dpb_pivot *pivot = &request->pivot;
    const bool lines = request->form == dpb_runs_csv || request->form == dpb_steps_csv;
    if (request->n == 0)
        return dpb_usage_error(self, "which results? give their files");
    if (request->page && (request->form || pivot->rows))
        return dpb_usage_error(self,
                               "one form at a time: --html beside --markdown, --csv or --rows");
    if (!pivot->rows && (pivot->columns || pivot->values))
        return dpb_usage_error(self, "--cols and --values need --rows, the setting of the lines");
    if (pivot->rows && lines)
        return dpb_usage_error(self,
                               "--rows is of rows: with --csv, not with --csv=runs or =steps");
    return DPB_OK;
}

static dpb_status parse(const struct dpb_command *self, int argc, char **argv,
                        struct request *request)
{
    for (int i = 1; i < argc; i++) {
        const char **list = list_of(&request->pivot, argv[i]);
        if (strcmp(argv[i], "--html") == 0) {
            if (request->page)
                return dpb_usage_error(self, "one page at a time: --html twice");
            request->page = i + 1 < argc ? argv[++i] : NULL;
            DPB_TRY(check_page(self, request->page));
        } else if (form_of(argv[i])) {
            if (request->form && request->form != form_of(argv[i]))
                return dpb_usage_error(self, "one form at a time: --markdown or --csv");
            request->form = form_of(argv[i]);
        } else if (list) {
            if (*list || i + 1 == argc)
                return dpb_usage_error(self, "%s needs one list of keys", argv[i]);
            *list = argv[++i];
        } else if (strcmp(argv[i], "--each") == 0) {
            request->each = true;
        } else if (argv[i][0] == '-') {
            return dpb_usage_error(self, "unknown option '%s'", argv[i]);
        } else {
            request->paths[request->n++] = argv[i];
        }
    }
    return check(self, request);
}

static int command_report(const struct dpb_command *self, int argc, char **argv)
{
    struct request request = {.paths = calloc((size_t)argc + 1, sizeof *request.paths)};
    dpb_status status = dpb_allocated(request.paths);
    DPB_THEN(status, parse(self, argc, argv, &request));
    DPB_THEN(status, request.page                     ? write_page(&request)
                     : request.n == 1 || request.each ? print_each(&request)
                                                      : print_merged(&request));
    free(request.paths);
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("report", command_report)
