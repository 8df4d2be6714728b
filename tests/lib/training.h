/*
 * training.h - short trainings by dpbench, kept with their result and their weights.
 */
#ifndef DPB_TESTS_LIB_TRAINING_H
#define DPB_TESTS_LIB_TRAINING_H

#include "lib/command.h"
#include "lib/weights.h"

/* Whether plugins/KIND_NAME.so was built. */
bool have_plugin(const char *kind_name);

/* The test's own (test.h), which frees it as it ends. */
struct training {
    char *settings; /* as given, for messages */
    struct command command;
    struct weights weights; /* empty unless the run ended well */
};

/* A directory for the runs of a test program, and its removal: cmocka's group fixtures. */
int training_setup(void **state);
int training_teardown(void **state);
/* The same, for tests that use plugins of tests/plugins (comm_mutant.c). */
int training_setup_mutants(void **state);

/*
 * Runs dpbench with `settings` (printf-like, SECTION.KEY=VALUE, cut at blanks) beside those that
 * all tests share: synthetic data, the reference device in float64, one thread, no warm-up, no
 * gate. Later settings win. `train` fails the test with the run's messages unless the run ends
 * well; `train_anyway` leaves that to the caller.
 */
void train(struct training *training, const char *settings, ...)
    __attribute__((format(printf, 2, 3)));
void train_anyway(struct training *training, const char *settings, ...)
    __attribute__((format(printf, 2, 3)));
/* Such a run; fails the test unless it ends with that exit code and its messages have all of the
 * words, ended by NULL. */
void train_says(int exit_code, const char *const *words, const char *settings, ...)
    __attribute__((format(printf, 3, 4)));
/* Before the test ends: for many or large ones. */
void training_free(struct training *training);

/* Starts such a run without waiting and without keeping its weights: command_finish collects it. */
void training_start(struct started *started, const char *settings);

/* Fails the test unless the pattern, run.prove and the comparison of the replicas passed. */
void expect_verified(const struct training *training);

/* Fails the test, naming both trainings, tensor, element and values, unless weights_agree. */
void expect_same_weights(const struct training *a, const struct training *b,
                         const struct training *start, double bound);
/* Fails the test unless the losses of all steps are within `bound` of each other, relatively. */
void expect_same_losses(const struct training *a, const struct training *b, double bound);

/* Whether the cpu device was built. */
bool have_cpu_device(void);
/* Whether it computes in bf16, which oneDNN does on some processors only: the device says so. */
bool cpu_has_bf16(void);
/* For processors without: dpbench with these arguments (printf-like) refuses bf16 on the cpu device
 * before any rank starts, with exit code 2 and what to do. */
void expect_bf16_refused(const char *arguments, ...) __attribute__((format(printf, 1, 2)));

#endif
