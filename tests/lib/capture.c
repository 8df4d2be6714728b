/* capture.c - see capture.h. */
#include "capture.h"
#include "base/log.h"
#include "lib/test.h"

#include <stdio.h>
#include <unistd.h>

static int saved_stderr = -1;
static FILE *captured;

void capture_begin(void)
{
    captured = tmpfile();
    assert_non_null(captured);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
}

const char *capture_end(void)
{
    static char text[CAPTURE_BYTES];
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    rewind(captured);
    text[fread(text, 1, sizeof text - 1, captured)] = '\0';
    fclose(captured);
    return text;
}

int silence(void **state)
{
    (void)state;
    dpb_log_set_hooks(&(struct dpb_log_hooks){.silent = true});
    return 0;
}
