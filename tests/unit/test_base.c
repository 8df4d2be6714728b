/*
 * Messages as they reach stderr and the hooks, from one thread and from many; memory; texts.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "lib/capture.h"
#include "lib/test.h"

static int reset(void **state)
{
    (void)state;
    dpb_first_error_clear();
    dpb_warnings_clear();
    dpb_log_set_hooks(NULL);
    dpb_log_set_prefix(NULL);
    dpb_log_set_level(DPB_LOG_INFO);
    return 0;
}

/* A message about a limit names it. */
TEST_WITH(test_limits, reset, NULL)
{
    dpb_fail(DPB_IO, "writing failed: %s", strerror(EFBIG));
    assert_non_null(strstr(dpb_first_error(NULL), "raise `ulimit -f`"));
    dpb_first_error_clear();
    dpb_fail(DPB_FAILED, "cannot start rank 3: %s", strerror(EAGAIN));
    assert_non_null(strstr(dpb_first_error(NULL), "pids.max"));
    dpb_first_error_clear();
    dpb_fail(DPB_FAILED, "recv: %s", strerror(EAGAIN));
    assert_null(strstr(dpb_first_error(NULL), "ulimit"));
}

TEST_WITH(test_first_error, reset, NULL)
{
    dpb_status status = DPB_FAILED;
    assert_string_equal(dpb_first_error(&status), "");
    assert_int_equal(status, DPB_OK);
    capture_begin();
    errno = ENOSPC;
    assert_int_equal(dpb_fail(DPB_IO, "disk %d is full", 3), DPB_IO);
    int errno_after = errno;
    assert_int_equal(dpb_fail(DPB_PEER, "and then this"), DPB_PEER);
    dpb_log_set_level(DPB_LOG_DEBUG);
    dpb_fail(DPB_PEER, "and that");
    assert_string_equal(capture_end(), "error: disk 3 is full\ndebug: later error: and that\n");
    assert_int_equal(errno_after, ENOSPC);
    assert_string_equal(dpb_first_error(&status), "disk 3 is full");
    assert_int_equal(status, DPB_IO);
    dpb_first_error_clear();
    assert_string_equal(dpb_first_error(&status), "");
    assert_int_equal(status, DPB_OK);
}

TEST_WITH(test_lines, reset, NULL)
{
    capture_begin();
    dpb_log_set_prefix("[1 host] ");
    dpb_log(DPB_LOG_INFO, "plain");
    dpb_log(DPB_LOG_DEBUG, "not shown");
    dpb_log(DPB_LOG_WARNING, "two\nlines\n");
    dpb_log_set_level(DPB_LOG_ERROR);
    dpb_log(DPB_LOG_INFO, "not shown");
    dpb_warn("kept", "not shown");
    assert_string_equal(capture_end(), "[1 host] plain\n[1 host] warning: two\n[1 host] lines\n");
}

TEST_WITH(test_long_message, reset, NULL)
{
    static char text[20000];
    memset(text, '\n', sizeof text - 1); /* the prefix before each line makes it longer still */
    memset(text, 'x', 100);
    dpb_log_set_prefix("[12 a-host-with-a-name] ");
    capture_begin();
    dpb_fail(DPB_FAILED, "%s", text);
    const char *written = capture_end();
    size_t length = strlen(written);
    assert_true(length > 4000 && length < 20000);
    assert_int_equal(written[length - 1], '\n');
    const char *kept = dpb_first_error(NULL);
    assert_string_equal(kept + strlen(kept) - 3, "...");
    dpb_first_error_clear();
    dpb_fail_at("x.ini:7");
    capture_begin();
    dpb_fail(DPB_FAILED, "%s", text);
    capture_end();
    dpb_fail_at(NULL);
    assert_memory_equal(kept, "x.ini:7: xxx", 12);
    assert_string_equal(kept + strlen(kept) - 3, "...");
}

struct seen {
    int errors, warnings;
    dpb_status status;
    char text[64], code[32];
};

static void see_error(void *context, dpb_status status, const char *text)
{
    struct seen *seen = context;
    seen->errors++;
    seen->status = status;
    snprintf(seen->text, sizeof seen->text, "%s", text);
    dpb_log(DPB_LOG_INFO, "a hook may log");
    errno = EBADF;
}

static void see_warning(void *context, const char *code, const char *text)
{
    struct seen *seen = context;
    seen->warnings++;
    snprintf(seen->code, sizeof seen->code, "%s", code);
    snprintf(seen->text, sizeof seen->text, "%s", text);
}

TEST_WITH(test_hooks, reset, NULL)
{
    struct seen seen = {0};
    struct dpb_log_hooks hooks = {see_error, see_warning, &seen, true};
    dpb_log_set_hooks(&hooks);
    capture_begin();
    errno = 0;
    dpb_fail(DPB_TIMEOUT, "late");
    assert_int_equal(errno, 0);
    dpb_fail(DPB_TIMEOUT, "later");
    assert_int_equal(seen.errors, 1);
    assert_int_equal(seen.status, DPB_TIMEOUT);
    assert_string_equal(seen.text, "late");
    dpb_warn("slow", "by %d", 3);
    dpb_warn("slow", "by %d", 3);
    assert_string_equal(capture_end(), "a hook may log\n");
    assert_int_equal(seen.warnings, 1);
    assert_string_equal(seen.code, "slow");
    assert_string_equal(seen.text, "by 3");
}

TEST_WITH(test_warnings, reset, NULL)
{
    const char *code, *text;
    assert_false(dpb_warning_at(0, &code, &text));
    capture_begin();
    dpb_warn("b", "one");
    dpb_warn("a", "two");
    dpb_warn("b", "one");
    dpb_warn("b", "two");
    assert_string_equal(capture_end(), "warning: one\nwarning: two\nwarning: two\n");
    assert_true(dpb_warning_at(0, &code, &text));
    assert_string_equal(code, "b");
    assert_string_equal(text, "one");
    assert_true(dpb_warning_at(1, &code, &text));
    assert_string_equal(code, "a");
    assert_true(dpb_warning_at(2, &code, &text));
    assert_false(dpb_warning_at(3, &code, &text));
    capture_begin();
    for (int i = 0; i < 1000; i++)
        dpb_warn("many", "number %d", i);
    capture_end();
    size_t n = 0;
    while (dpb_warning_at(n, &code, &text))
        n++;
    assert_in_range(n, 100, 999);
    assert_string_equal(code, "too_many_warnings");
    dpb_warnings_clear();
    assert_false(dpb_warning_at(0, &code, &text));
    /* Of one code only the first is printed, run after run; then the counts. */
    capture_begin();
    dpb_warnings_once(true);
    dpb_warn("b", "one");
    dpb_warn("b", "two");
    dpb_warnings_clear();
    dpb_warn("b", "one");
    dpb_warn("a", "three");
    dpb_warnings_once(false);
    dpb_warn("b", "four");
    assert_string_equal(capture_end(),
                        "warning: one\nwarning: three\nwarning: b: 3 times in all; warnings[] of "
                        "each run have the others\nwarning: four\n");
    dpb_warnings_clear();
}

enum { THREADS = 4, LINES = 200 };

static void *talk(void *context)
{
    int thread = *(int *)context;
    for (int i = 0; i < LINES; i++) {
        dpb_log(DPB_LOG_INFO, "thread %d says %d and means it", thread, i);
        dpb_warn("talk", "warning %d", i % 10);
        dpb_fail(DPB_FAILED, "thread %d failed", thread);
    }
    return NULL;
}

TEST_WITH(test_threads, reset, NULL)
{
    pthread_t thread[THREADS];
    int number[THREADS], next[THREADS] = {0}, others = 0;
    capture_begin();
    for (int i = 0; i < THREADS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, talk, &number[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    const char *line = capture_end();
    for (; *line; line = strchr(line, '\n') + 1) {
        int from, i, end = 0;
        if (sscanf(line, "thread %d says %d and means it%n", &from, &i, &end) == 2 && end > 0)
            assert_int_equal(i, next[from]++);
        else
            others++;
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(next[i], LINES);
    assert_int_equal(others, 10 + 1); /* each warning once, one error */
    const char *code, *text;
    assert_true(dpb_warning_at(9, &code, &text));
    assert_false(dpb_warning_at(10, &code, &text));
}

TEST_WITH(test_status, reset, NULL)
{
    assert_string_equal(dpb_status_name(DPB_NOT_STEADY), "NOT_STEADY");
    assert_string_equal(dpb_status_name((dpb_status)99), "UNKNOWN");
    assert_int_equal(dpb_status_exit_code(DPB_OK), 0);
    assert_int_equal(dpb_status_exit_code(DPB_USAGE), 2);
    assert_int_equal(dpb_status_exit_code(DPB_INTERRUPTED), 130);
    assert_int_equal(dpb_status_exit_code((dpb_status)99), 1);
}

TEST_WITH(test_alloc, reset, NULL)
{
    static const size_t sizes[] = {
        0, 1, 63, 64, 65, 4097, (2u << 20) - 1, 2u << 20, (6u << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *memory = dpb_alloc(sizes[i]);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            if (memory[j] != 0)
                fail_msg("byte %zu of %zu is not zero", j, sizes[i]);
        memset(memory, 0xff, sizes[i]); /* the next one must not see it */
        dpb_release(memory, sizes[i]);
    }
    dpb_release(NULL, 100);
    capture_begin();
    assert_null(dpb_alloc(SIZE_MAX));
    assert_null(dpb_alloc(SIZE_MAX / 2));
    capture_end();
    dpb_status status;
    dpb_first_error(&status);
    assert_int_equal(status, DPB_NO_MEMORY);
}

TEST_WITH(test_clock, reset, NULL)
{
    int64_t before = dpb_now_ns();
    usleep(2000);
    int64_t passed = dpb_now_ns() - before;
    assert_true(passed >= 2000000 && passed < INT64_C(10000000000));
}

TEST_WITH(test_text, reset, NULL)
{
    char small[8], middle[16], none[1];
    struct dpb_text text = dpb_text_in(small, sizeof small), empty = dpb_text_in(none, 1),
                    list = dpb_text_in(middle, sizeof middle);
    dpb_text_add(&text, "%s", "12345");
    dpb_text_add(&text, "%s", "678"); /* is cut, and so is all behind it */
    dpb_text_add(&text, "%d", 9);
    assert_string_equal(small, "1234567");
    assert_int_equal(text.length, strlen(small));
    dpb_text_add(&empty, "x");
    assert_string_equal(none, "");
    /* Of a list the items are whole: one is left out, and so are all behind it. */
    dpb_text_item(&list, ", ", "%d", 1);
    dpb_text_item(&list, ", ", "%s", "two");
    assert_string_equal(middle, "1, two");
    dpb_text_item(&list, ", ", "%s", "eighteen");
    dpb_text_item(&list, ", ", "%d", 4);
    assert_string_equal(middle, "1, two ...");
    assert_int_equal(list.length, strlen(middle));
    list = dpb_text_in(small, sizeof small); /* without room for the mark */
    dpb_text_item(&list, ", ", "%s", "123456");
    dpb_text_item(&list, ", ", "%d", 7);
    assert_string_equal(small, "123456");
    list = dpb_text_in(small, sizeof small);
    dpb_text_item(&list, ", ", "%s", "123456789");
    assert_string_equal(small, "1234567");
}

TEST_MAIN(NULL, reset)
