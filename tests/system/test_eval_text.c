/* needs: plain */
/*
 * test_eval_text.c - `dpbench eval --sample`: a network that has learnt a short text by heart
 * writes it, the seed decides what is drawn, and networks and data that cannot write are refused.
 */
#include <stdio.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 120.0;

#define PERIOD "one_two_three_four_" /* no 7 bytes of it come twice */
#define NET "model.name=gpt model.layers=1 model.heads=2 model.width=16 model.context=8 "
#define WORDS_OF_TEXT "data.name=tokens data.path=words data.test_path=words "
#define EVAL "eval -c x.ini " NET WORDS_OF_TEXT "checkpoint.load=net.safetensors "

/* Trains the network that all tests load. */
static int set_up(void **state)
{
    char text[27 * (sizeof PERIOD - 1) + 1] = "";
    struct command command;
    int result = sandbox_setup(state);
    for (int i = 0; i < 27; i++)
        strcat(text, PERIOD);
    sandbox_write("words", "%s", text);
    sandbox_write("x.ini", "[device]\nname = reference\nthreads = 1\n[run]\nprecision = fp64\n");
    dpbench_ends(&command, deadline_s, 0,
                 "-c x.ini " NET WORDS_OF_TEXT
                 "run.results= run.steady_limit_s=0 run.warmup_steps=0 run.steps=600 run.batch=8 "
                 "optimizer.name=adamw optimizer.learning_rate=0.02 "
                 "checkpoint.save=net.safetensors");
    return result;
}

/* The text of so many bytes, without the line break behind it. */
static const char *written(struct command *command, size_t n, const char *words)
{
    dpbench_ends(command, deadline_s, 0, EVAL "%s --sample %zu", words, n);
    assert_int_equal(strlen(command->out), n + 1);
    assert_int_equal(command->out[n], '\n');
    command->out[n] = '\0';
    return command->out;
}

/* Prompts that are shorter than the window of 8, as long and longer. */
TEST(test_text_learnt_by_heart)
{
    static const char *const prompts[] = {"e_two_t", "four_one", "three_four_one_two_th"};
    static const char text[] = PERIOD PERIOD PERIOD PERIOD PERIOD;
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        struct command command;
        char words[64];
        snprintf(words, sizeof words, "--temperature 0 --prompt %s", prompts[i]);
        const char *wanted = strstr(text, prompts[i]) + strlen(prompts[i]);
        if (strncmp(written(&command, 40, words), wanted, 40) != 0)
            fail_msg("behind '%s': '%s', not '%.40s'", prompts[i], command.out, wanted);
    }
}

/* A hot network draws nearly any byte. */
TEST(test_seeds)
{
    struct command first, again, longer, other, cold;
    const char *text = written(&first, 60, "--temperature 5");
    assert_string_equal(written(&again, 60, "--temperature 5 run.seed=1"), text);
    assert_memory_equal(written(&longer, 80, "--temperature 5"), text, 60);
    assert_string_not_equal(written(&other, 60, "--temperature 5 run.seed=2"), text);
    assert_string_not_equal(written(&cold, 60, "--temperature 0"), text);
}

/* The probabilities themselves: "o" begins the text and stands behind "tw", "f" and "_". */
TEST(test_draws_by_probability)
{
    struct command command;
    const char *text = written(&command, 400, "--prompt _one_two");
    size_t learnt = 0;
    for (size_t i = 0; i + 3 < 400; i++) {
        const char bytes[] = {text[i], text[i + 1], text[i + 2], text[i + 3], '\0'};
        learnt += strstr(PERIOD PERIOD, bytes) != NULL;
    }
    assert_true(learnt > 300); /* a uniform draw has none */
}

TEST(test_devices_agree)
{
    struct command one, other;
    if (!have_cpu_device())
        skip();
    written(&one, 40, "--temperature 0 --prompt one_two");
    written(&other, 40, "--temperature 0 --prompt one_two device.name=cpu run.precision=fp32");
    assert_string_equal(one.out, other.out);
}

TEST(test_words_refused)
{
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"--sample", "--sample needs a number of bytes from 1 up"},
        {"--sample 0", "--sample needs a number of bytes from 1 up"},
        {"--sample 2 --prompt", "--prompt needs a text of one byte or more"},
        {"--prompt x", "--prompt and --temperature are for --sample N"},
        {"--temperature 1", "--prompt and --temperature are for --sample N"},
        {"--sample 2 --temperature -1", "--temperature needs a number from 0 up"},
        {"--sample 2 --json", "--sample prints text, and no document: leave --json out"},
        {"--sample 2 --output f", "--sample prints text, and no document: leave --output out"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i].message), EVAL "%s", rows[i].words);
}

/* Networks that are trained, but write no bytes. */
TEST(test_networks_refused)
{
    static const struct {
        const char *settings, *message;
    } rows[] = {{NET "data.name=synthetic model.nclass=300",
                 "--sample writes bytes, and data 'synthetic' has 300 tokens; take data.name = "
                 "tokens with data.type = bytes"},
                {"data.name=synthetic model.name=tiny model.nclass=256 data.samples=99",
                 "--sample writes bytes, and data 'synthetic' has 256 classes of images; take"},
                {WORDS_OF_TEXT "model.name=both_ways",
                 "--sample needs a network whose positions see no later ones, and in model "
                 "'both_ways' those of 'attention' do; take a GPT"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0,
                     "-c x.ini %s run.results= run.steady_limit_s=0 run.warmup_steps=0 run.steps=1 "
                     "run.batch=1 checkpoint.save=other.safetensors",
                     rows[i].settings);
        dpbench_says(deadline_s, 2, WORDS(rows[i].message),
                     "eval -c x.ini %s checkpoint.load=other.safetensors --sample 2",
                     rows[i].settings);
    }
}

/* A network that has grown beyond all bounds. */
TEST(test_not_finite)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "-c x.ini " NET WORDS_OF_TEXT
                 "run.results= run.steady_limit_s=0 run.warmup_steps=0 run.steps=60 run.batch=8 "
                 "run.nan=continue optimizer.learning_rate=1e6 optimizer.weight_decay=1 "
                 "checkpoint.save=wild.safetensors");
    dpbench_says(deadline_s, 2, WORDS("the network's logits are not finite"),
                 "eval -c x.ini " NET WORDS_OF_TEXT
                 "checkpoint.load=wild.safetensors run.nan=continue --sample 2");
}

TEST_MAIN(set_up, sandbox_teardown)
