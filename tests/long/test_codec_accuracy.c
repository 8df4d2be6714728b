/* needs: long */
/*
 * test_codec_accuracy.c - what topk costs in accuracy: with error feedback a network learns as well
 * as without a codec; where what messages lack is dropped, it learns visibly worse.
 */
#include <unistd.h>

#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 3000.0;
/* Of the accuracy without a codec. */
static const double equal_within = 0.01, visible = 0.03;

static const struct training_case {
    const char *name, *settings, *codec;
    const char *data; /* a file that it needs; NULL: none */
} cases[] = {
    {"LeNet on Fashion-MNIST", "model.name=lenet data.name=idx run.steps=400",
     "topk comm.codec_ratio=0.001", "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"},
    {"ResNet-20 on synthetic data",
     "model.name=resnet20 data.name=synthetic data.samples=20000 data.test_samples=1000 "
     "run.steps=200",
     "topk comm.codec_ratio=0.02", NULL},
};

static double accuracy_of(const struct training_case *row, const char *codec, const char *feedback)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "-c /dev/null --json run.results= run.workers=2 run.batch=32 run.warmup_steps=0 "
                 "run.steady_limit_s=0 device.threads=1 comm.name=shm eval.final=yes "
                 "optimizer.learning_rate=0.05 optimizer.momentum=0 %s comm.codec=%s%s",
                 row->settings, codec, feedback);
    const double accuracy = json_number_at(command.json, "eval.0.accuracy");
    print_message("%s, %s%s: %.2f %%, %.0f s\n", row->name, codec, feedback, 100 * accuracy,
                  command.seconds);
    return accuracy;
}

static void test_accuracy(void **state)
{
    const struct training_case *row = *state;
    if (!have_cpu_device() || (row->data && access(row->data, R_OK) != 0)) {
        print_message("needs the cpu device, and LeNet Debian's package dataset-fashion-mnist\n");
        skip();
    }
    const double plain = accuracy_of(row, "none", ""), with = accuracy_of(row, row->codec, "");
    const double dropped = accuracy_of(row, row->codec, " comm.codec_feedback=no");
    if (!(with >= plain - equal_within))
        fail_msg("%.2f %% with error feedback, and %.2f %% without a codec", 100 * with,
                 100 * plain);
    if (!(dropped <= plain - visible))
        fail_msg("%.2f %% without error feedback, and %.2f %% without a codec", 100 * dropped,
                 100 * plain);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        add_case(test_accuracy, (void *)&cases[i], "%s, %s", cases[i].name, cases[i].codec);
    return test_main(NULL, NULL);
}
