/* conform.c - outcomes of trials: see conform.h. */
#include "conform/conform.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

void dpb_conform_heading(struct dpb_conform *conform, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    conform->shown[0] = '\0';
}

dpb_status dpb_conform_promised(dpb_status status)
{
    return status == DPB_UNSUPPORTED || status == DPB_USAGE ? DPB_VERIFICATION : status;
}

void dpb_conform_trial(struct dpb_conform *conform, dpb_status status, const char *name)
{
    char reason[2048];
    const char *text = dpb_first_error(NULL);
    if (status == DPB_OK) {
        size_t used = strlen(conform->shown);
        snprintf(conform->shown + used, sizeof conform->shown - used, "%s%s", used ? "; " : "",
                 name);
        conform->n_shown++;
        return;
    }
    bool refused = status == DPB_UNSUPPORTED || status == DPB_USAGE;
    dpb_escape(text, strlen(text) < 400 ? strlen(text) : 400, reason, sizeof reason);
    printf("  %-8s %s: %s\n", refused ? "refused" : "FAILED", name,
           text[0] ? reason : "the plugin gave no reason");
    conform->n_refused += refused;
    conform->n_failed += !refused;
    dpb_first_error_clear();
    fflush(stdout); /* the next trial may crash */
}

void dpb_conform_end(struct dpb_conform *conform)
{
    printf("  %-8s %s\n", "shown", conform->shown[0] ? conform->shown : "nothing");
    conform->shown[0] = '\0';
    fflush(stdout);
}
