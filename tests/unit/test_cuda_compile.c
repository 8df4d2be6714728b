/* needs: cuda stand-in */
/*
 * test_cuda_compile.c - compiling cuDNN's plans with sums on a CUDA for tests: on several threads,
 * and in several processes.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cuda_block.h"

enum { PLANS_TEXT = 4096 };

/* Compiles the block on so many threads. The plans that it has for sums, in words; "": refused.
 * Returns how many gradients by the input have plans without sums. */
static int plans_of(uint32_t threads, char words[PLANS_TEXT])
{
    const struct options off = {
        .ids = "", .tuning = "no", .fusion = FUSION_OFF, .workspace = 60000};
    struct dpb_session s;
    void *device, *made = NULL;
    session_options(&off);
    session_open(&block, DPB_PRECISION_BF16, true, &s);
    const struct dpb_device_args device_args = {.threads = threads, .seed = SEED};
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    const struct dpb_compile_args args = {.graph = s.graph,
                                          .batch = s.batch.n,
                                          .precision = DPB_PRECISION_BF16,
                                          .training = true,
                                          .format = &s.format};
    int n_alone = 0;
    words[0] = 0;
    expect_ok(s.ops->open(&options, &device_args, &device));
    dpb_first_error_clear();
    const dpb_status status = s.ops->compile(device, &args, &memory, &made);
    const struct program *p = made;
    for (const struct conv_plans *plans = p ? p->plans : NULL; plans; plans = plans->next) {
        n_alone +=
            strstr(plans->key, "\tdata bf16") || strstr(plans->key, "\tdata added to another bf16");
        for (uint32_t i = 0; strstr(plans->key, "with s") && i < plans->n; i++)
            snprintf(words + strlen(words), PLANS_TEXT - strlen(words), "%s %d %zu\n", plans->key,
                     plans->plans[i].rank, plans->plans[i].workspace);
    }
    assert_int_equal(status, p ? DPB_OK : DPB_UNSUPPORTED);
    dpb_first_error_clear();
    s.ops->release(made);
    s.ops->close(device);
    session_close(&s);
    return n_alone;
}

/* Nine calls with sums are compiled, at once where the rank has several cores: the plans are the
 * same. A plan that fails is its own call's alone; where all fail, no thread and no plan is left,
 * which the stand-in would abort for. */
TEST(test_threads)
{
    static char one[PLANS_TEXT], four[PLANS_TEXT];
    uint64_t before, compiled;
    set_options(FUSION_ON, "no");
    setenv("DPB_STAND_IN_COMPILE_MS", "20", 1);
    assert_int_equal(plans_of(1, one), 4); /* with sums there are four */
    assert_int_equal(stand_in_counted("stand_in_compiled_at_once"), 1);
    before = stand_in_counted("stand_in_compiled");
    plans_of(4, four);
    compiled = stand_in_counted("stand_in_compiled") - before;
    assert_in_range(stand_in_counted("stand_in_compiled_at_once"), 2, 4);
    assert_int_equal(compiled, 9);
    assert_non_null(strchr(one, '\n'));
    assert_string_equal(one, four);
    setenv("DPB_STAND_IN_BROKEN", "plan", 1);
    plans_of(4, four);
    assert_string_equal(four, "");
    unsetenv("DPB_STAND_IN_BROKEN");
    unsetenv("DPB_STAND_IN_COMPILE_MS");
}

/* Of two processes that start at once one compiles; the other takes what it has kept. */
TEST(test_compiled_once)
{
    static char ours[PLANS_TEXT], theirs[PLANS_TEXT];
    char path[128];
    int go[2], status;
    snprintf(path, sizeof path, "%s/once", cache);
    set_options(FUSION_AUTO, "no");
    assert_int_equal(plans_of(1, ours),
                     6); /* the stand-in is loaded, and fusion = auto, untuned, compiles nothing */
    const uint64_t before = stand_in_counted("stand_in_compiled");
    set_options(FUSION_ON, path);
    options.workspace = FEW_PLANS;
    setenv("DPB_STAND_IN_COMPILE_MS", "100", 1);
    assert_int_equal(pipe(go), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char byte;
        alarm(120);
        if (read(go[0], &byte, 1) != 1)
            _exit(99);
        plans_of(2, theirs);
        _exit((int)(stand_in_counted("stand_in_compiled") - before));
    }
    assert_int_equal(write(go[1], "", 1), 1);
    plans_of(2, ours);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(go[0]);
    close(go[1]);
    unsetenv("DPB_STAND_IN_COMPILE_MS");
    const uint64_t mine = stand_in_counted("stand_in_compiled") - before;
    assert_true(WIFEXITED(status));
    print_message("compiled: %d and %d\n", (int)mine, WEXITSTATUS(status));
    assert_true(mine == 0 || WEXITSTATUS(status) == 0);
    assert_true(mine + (uint64_t)WEXITSTATUS(status) >= 9);
}

int main(void)
{
    setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    return test_main(setup, teardown);
}
