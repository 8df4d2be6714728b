/* cmd_report.c - `dpbench report [--markdown | --csv] RESULT.json...`: prints the tables of kept
 * results. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/forms.h"
#include "study/json.h"
#include "study/result.h"
#include "study/sweep.h"

typedef void print_form(const json_t *document, FILE *out);

/* Prints the table of the run or sweep again, or a sweep's in another form. */
static dpb_status report(const char *path, print_form *form)
{
    json_t *read = NULL;
    DPB_TRY(dpb_result_read(path, &read));
    json_t *document = dpb_json_printable(read);
    json_decref(read);
    if (document == NULL)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    bool is_sweep = strcmp(dpb_json_text(document, "schema", ""), "dpbench.sweep/1") == 0;
    dpb_status status = DPB_OK;
    if (form == NULL)
        printf("%s\n", path);
    if (form != NULL && !is_sweep)
        status =
            dpb_fail(DPB_USAGE, "%s: a run has no rows; --markdown and --csv are for sweeps", path);
    else if (is_sweep)
        (form != NULL ? form : dpb_sweep_print)(document, stdout);
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

int dpb_command_report(const struct dpb_command *self, int argc, char **argv)
{
    print_form *form = argc > 1 ? form_of(argv[1]) : NULL;
    const int first = form != NULL ? 2 : 1;
    dpb_status status =
        argc <= first ? dpb_usage_error(self, "which results? give their files") : DPB_OK;
    for (int i = first; i < argc && status == DPB_OK; i++) {
        if (argv[i][0] == '-')
            status = dpb_usage_error(self, "unknown option '%s'", argv[i]);
        else if (i > first)
            putchar('\n');
        if (status == DPB_OK)
            status = report(argv[i], form);
    }
    return dpb_status_exit_code(status);
}
