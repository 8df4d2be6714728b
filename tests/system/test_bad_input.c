/*
 * test_bad_input.c - whatever is wrong with what the user gives is refused with exit code 2, by a
 * message that says where it stands and what to do, and leaves nothing behind.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

/* What is refused: the arguments after `dpbench`, and words that the message must have. */
struct row {
    const char *arguments;
    const char *parts[5];
};

/* ---- files that the rows name -------------------------------------------------------------- */

static const char base_ini[] = "[run]\nresults = results\nsteps = 2\nwarmup_steps = 1\n"
                               "steady_limit_s = 0\nbatch = 2\n"
                               "[model]\nname = tiny\n"
                               "[device]\nname = reference\nthreads = 1\n";

/* Files of their own for what a command line cannot say. */
static const struct {
    const char *name, *text;
} ini_files[] = {
    {"section.ini", "[run]\nsteps = 2\n[optimiser]\nmomentum = 0\n"},
    {"key.ini", "[run]\nsteps = 2\n\n[comm]\nname = shm\nbukcet = 4 MiB\n"},
    {"other_section.ini", "[run]\nsteps = 2\nmomentum = 0.9\n"},
    {"plugin_key.ini", "[run]\nsteps = 2\n[data]\nname = synthetic\nsampels = 64\n"},
    {"unit.ini", "[run]\nsteps = 2\n[comm]\nbucket = 4 MX\n"},
    {"number.ini", "[run]\nsteps = 2\nworkers = two\n"},
    {"range.ini", "[run]\nsteps = 2\nworkers = 0\n"},
    {"choice.ini", "[run]\nsteps = 2\nprecision = fp23\n"},
    {"twice.ini", "[run]\nsteps = 2\nbatch = 4\n[model]\nname = tiny\n[run]\nbatch = 8\n"},
    {"no_value.ini", "[run]\nsteps = 2\nbatch\n"},
    {"no_section.ini", "steps = 2\n"},
    {"model.ini", "[run]\nsteps = 2\n[model]\nname = tinny\n"},
    {"lengths.ini", "[run]\nsteps = 2\nepochs = 1\n"},
    {"no_length.ini", "[run]\nbatch = 2\n"},
    {"sweep.ini", "[run]\nsteps = 2\n[model]\nname = tiny\n[sweep]\nrun.wrokers = 1, 2\n"},
    {"batches.ini", "[run]\nsteps = 2\nbatch = 2\nglobal_batch = 4\n"},
    {"load.ini", "[run]\nsteps = 2\n[checkpoint]\nload = nowhere.safetensors\n"},
    {"path.ini", "[run]\nsteps = 2\n[data]\nname = idx\npath = nowhere\n"},
    {"divide.ini", "[run]\nsteps = 2\nworkers = 2\nglobal_batch = 7\n"},
};

/* A line that is too long; a file that has no end of line; bytes that are no text. */
static void write_odd_files(void)
{
    static const char head[] = "[run]\nsteps = 2\nname = ";
    char text[9216];
    size_t length = strlen(head);
    memcpy(text, head, length);
    memset(text + length, 'x', sizeof text - length);
    text[length + 9000] = '\n';
    write_file("long.ini", text, length + 9001);
    write_file("zero.ini", "[run]\nsteps = 2\0\n", 17);
    write_file("latin.ini", "[run]\nsteps = 2\nname = caf\xe9\n", 28);
    write_file("file", "", 0);
    write_file("no_result.json", "{\"schema\": \"dpbench.result/9\"}", 30);
    write_file("cut_result.json", "{\"schema\": ", 11);
    mkdir("folder", 0777);
    write_file("escape.ini", "[run]\nsteps = 2\nname = \x1b[31mred\n", 31);
    FILE *many = fopen("many.ini", "w");
    assert_non_null(many);
    fputs("[run]\nsteps = 2\n", many);
    for (int i = 0; i < 200000; i++)
        fprintf(many, "key%d = 1\n", i);
    assert_int_equal(fclose(many), 0);
}

/* An idx set of 12 training and 4 test images of 9 x 9 in 5 classes. */
enum { TRAIN_IMAGES = 12, TEST_IMAGES = 4, IMAGE_BYTES = 81, N_CLASSES = 5 };

struct content {
    uint8_t bytes[16 + TRAIN_IMAGES * IMAGE_BYTES];
    size_t n;
};

static void set_dimension(struct content *content, size_t at, uint32_t value)
{
    for (size_t i = 0; i < 4; i++)
        content->bytes[at + i] = (uint8_t)(value >> (24 - 8 * i));
}

static struct content idx_content(bool images, uint32_t n)
{
    struct content content = {.n = images ? 16 + n * IMAGE_BYTES : 8 + n};
    set_dimension(&content, 0, images ? 0x803 : 0x801);
    set_dimension(&content, 4, n);
    if (images) {
        set_dimension(&content, 8, 9);
        set_dimension(&content, 12, 9);
    }
    for (size_t i = images ? 16 : 8; i < content.n; i++)
        content.bytes[i] = (uint8_t)(images ? 7 * i : (i - 8) % N_CLASSES);
    return content;
}

/* Each of these sets has one file that is wrong in one thing. */
static const struct damage {
    const char *set, *file;
    long add;           /* bytes at the end; negative: cut */
    uint32_t at, value; /* a dimension (at > 0) */
    long gzip_add;      /* gzipped; bytes of the compressed file cut (negative) or kept (1) */
} damages[] = {
    {"good", "", 0, 0, 0, 0},
    {"cut", "train-images-idx3-ubyte", -5, 0, 0, 0},
    {"long", "train-labels-idx1-ubyte", 3, 0, 0, 0},
    {"counts", "train-labels-idx1-ubyte", -1, 4, TRAIN_IMAGES - 1, 0},
    {"magic", "t10k-images-idx3-ubyte", 0, 0 + 1, 0, 0},
    {"sizes", "t10k-images-idx3-ubyte", -(long)TEST_IMAGES * 9, 8, 8, 0},
    {"hostile", "train-images-idx3-ubyte", 0, 4, UINT32_MAX, 0},
    {"gzip_cut", "train-images-idx3-ubyte", 0, 0, 0, -9},
    {"gzip_inside", "train-images-idx3-ubyte", -5, 0, 0, 1},
};

static void write_gzip(const char *path, const struct content *content, long cut)
{
    char bytes[sizeof content->bytes + 1024];
    gzFile gzip = gzopen(path, "wb");
    assert_int_equal(gzwrite(gzip, content->bytes, (unsigned)content->n), (int)content->n);
    assert_int_equal(gzclose(gzip), Z_OK);
    FILE *file = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    write_file(path, bytes, cut < 0 ? n - (size_t)-cut : n);
}

static void write_idx_set(const struct damage *damage)
{
    static const struct {
        const char *name;
        bool images;
        uint32_t n;
    } files[] = {{"train-images-idx3-ubyte", true, TRAIN_IMAGES},
                 {"train-labels-idx1-ubyte", false, TRAIN_IMAGES},
                 {"t10k-images-idx3-ubyte", true, TEST_IMAGES},
                 {"t10k-labels-idx1-ubyte", false, TEST_IMAGES}};
    char path[128];
    assert_int_equal(mkdir(damage->set, 0777), 0);
    for (size_t i = 0; i < 4; i++) {
        bool damaged = strcmp(files[i].name, damage->file) == 0;
        struct content content = idx_content(files[i].images, files[i].n);
        if (damaged && damage->at > 0)
            set_dimension(&content, damage->at & ~3u, damage->value);
        if (damaged)
            content.n = (size_t)((long)content.n + damage->add);
        snprintf(path, sizeof path, "%s/%s%s", damage->set, files[i].name,
                 damaged && damage->gzip_add ? ".gz" : "");
        if (damaged && damage->gzip_add)
            write_gzip(path, &content, damage->gzip_add);
        else
            write_file(path, content.bytes, content.n);
    }
}

/* ---- checks -------------------------------------------------------------------------------- */

/* `word` stands before the arguments. */
static void expect_refused(const char *word, const struct row *row)
{
    struct command command;
    struct traces before;
    traces_take(&before, ".");
    dpbench(&command, deadline_s, "%s%s", word, row->arguments);
    if (command.exit_code != 2 || command.out[0])
        fail_msg("dpbench %s: exit %d%s\n%s%s", row->arguments, command.exit_code,
                 command.late ? " (late)" : "", command.out, command.err);
    expect_words(row->arguments, command.err, row->parts);
    const char *error = strstr(command.err, "error: ");
    if (!error || strstr(error + 1, "error: "))
        fail_msg("dpbench %s: not one message: %s", row->arguments, command.err);
    traces_expect_none(&before, row->arguments, 1.0);
}

static void expect_all_refused(const struct row *rows)
{
    for (; rows->arguments; rows++)
        expect_refused("", rows);
}

/* ---- the rows ------------------------------------------------------------------------------ */

/* clang-format off */
static const struct row file_rows[] = {
    {"-c section.ini", {"section.ini:4: unknown section 'optimiser'", "did you mean 'optimizer'?"}},
    {"-c key.ini", {"key.ini:6: unknown option 'bukcet'", "did you mean 'bucket'?"}},
    {"-c other_section.ini", {"other_section.ini:3: unknown option 'momentum' in [run]",
                              "it belongs to [optimizer]"}},
    {"-c plugin_key.ini", {"plugin_key.ini:5: unknown option 'sampels' for data 'synthetic'",
                           "did you mean 'samples'?"}},
    {"-c unit.ini", {"unit.ini:4: comm.bucket: '4 MX' has an unknown unit", "KiB, MB, MiB"}},
    {"-c number.ini", {"number.ini:3: run.workers: 'two' is not a number"}},
    {"-c range.ini", {"range.ini:3: run.workers: '0' is out of range: 1 to 1024"}},
    {"-c choice.ini",
     {"choice.ini:3: run.precision: 'fp23' is not one of fp32, bf16, fp64, tf32, fp16"}},
    {"-c twice.ini", {"twice.ini:7: ", "batch", "twice.ini:3"}},
    {"-c long.ini", {"long.ini:3: ", "8191"}},
    {"-c no_value.ini", {"no_value.ini:3: "}},
    {"-c no_section.ini", {"no_section.ini:1: ", "section"}},
    {"-c zero.ini", {"zero.ini:2: "}},
    {"-c latin.ini", {"latin.ini:3: ", "run.name", "UTF-8"}},
    {"-c missing.ini", {"missing.ini: cannot be read: No such file"}},
    {"-c quickstart", {"-c quickstart: there is no such file", "stands without -c"}},
    {"-c folder", {"folder: cannot be read: Is a directory"}},
    {"-c model.ini", {"model.ini:4: unknown model 'tinny'; did you mean 'tiny'?"}},
    {"-c lengths.ini", {"lengths.ini:3: run.epochs", "run.steps (lengths.ini:2)", "exactly one"}},
    {"-c escape.ini", {"escape.ini:3: a control character"}},
    {"-c many.ini", {"many.ini:4098: more than 4096 settings"}},
    {"-c no_length.ini",
     {"no_length.ini:2: how long is the run?", "run.steps", "run.seconds", "run.epochs"}},
    {"-c batches.ini", {"batches.ini:4: run.global_batch", "run.batch (batches.ini:3)"}},
    {"-c divide.ini", {"divide.ini:4: run.global_batch = 7", "2 workers", "multiple"}},
    {"-c sweep.ini", {"sweep.ini:6: ", "wrokers", "did you mean 'workers'?"}},
    {"-c load.ini", {"load.ini:4: nowhere.safetensors"}},
    {"-c path.ini", {"path.ini:5: data.path = nowhere"}},
    {"rerun missing.json", {"missing.json", "No such file"}},
    {"rerun no_result.json", {"no_result.json: schema is dpbench.result/9", "dpbench.result/1"}},
    {"rerun cut_result.json", {"cut_result.json", "is it a result of dpbench?"}},
    {0}};

static const struct row plugin_rows[] = {
    {"-c base.ini model.name=tinny", {"command line: unknown model 'tinny'", "did you mean 'tiny'?",
                                      "plugins/model_tinny.so: No such file",
                                      "lib/dpbench/model_tinny.so: No such file"}},
    {"-c base.ini data.name=sinthetic", {"unknown data 'sinthetic'", "did you mean 'synthetic'?",
                                         "plugins/data_sinthetic.so: No such file"}},
    {"-c base.ini device.name=referense",
     {"unknown device 'referense'", "did you mean 'reference'?",
      "plugins/device_referense.so: No such file"}},
    {"-c base.ini comm.name=replikated", {"unknown comm 'replikated'", "did you mean 'replicated'?",
                                          "plugins/comm_replikated.so: No such file"}},
    {"-c base.ini comm.name=../comm_shm", {"'../comm_shm' is no name", "[a-z0-9_]+"}},
    {0}};

static const struct row value_rows[] = {
    {"-c base.ini run.workers=1025", {"command line: run.workers", "1 to 1024"}},
    {"-c base.ini run.workers=2.5", {"'2.5' is not a whole number"}},
    {"-c base.ini run.workers=99999999999999999999", {"run.workers", "1 to 1024"}},
    {"-c base.ini run.timeout_s=3parsec", {"run.timeout_s: '3parsec' has an unknown unit", "min"}},
    {"-c base.ini optimizer.learning_rate=nan", {"optimizer.learning_rate: 'nan' is not a number"}},
    {"-c base.ini run.monitor=9ms", {"command line: run.monitor = 0.009 s", "10 ms or more"}},
    {"-c base.ini run.monitor=61", {"command line: run.monitor = 61 s", "wrap", "60 s or less"}},
    {"-c base.ini run.prove=maybe", {"run.prove: 'maybe' is not yes or no"}},
    {"-c base.ini run", {"'run' is no setting", "SECTION.KEY=VALUE", "usage: "}},
    {"-c base.ini run=3", {"'run=3' is not SECTION.KEY=VALUE"}},
    {"-c base.ini sweep.run.stps=1,2", {"unknown option 'stps'", "did you mean 'steps'?"}},
    {"-c base.ini sweep.run.steps=1,,2", {"sweep.run.steps has an empty value"}},
    {"-c base.ini sweep.run.steps=1,1", {"has '1' twice", "set repeats"}},
    {"-c base.ini sweep.repeats=0", {"sweep.repeats", "out of range"}},
    {0}};

static const struct row combination_rows[] = {
    {"-c base.ini run.precision=bf16", {"command line: device 'reference' does not compute in bf16",
                                        "set run.precision", "fp32", "fp64"}},
    {"-c base.ini run.precision=tf32", {"command line: device 'reference' does not compute in tf32",
                                        "set run.precision to one that it has: fp32 fp64"}},
    {"-c base.ini run.precision=fp16", {"device 'reference' does not compute in fp16"}},
    {"-c base.ini run.loss_scale=8", {"run.loss_scale = 8 does nothing: it needs run.precision"}},
    {"-c base.ini data.place=device",
     {"command line: data.place = device: device 'reference' keeps no samples",
      "leave data.place out"}},
    {"-c base.ini run.workers=4 comm.name=shm comm.hosts=2x2",
     {"comm 'shm' works within one machine", "comm.hosts = 2x2", "makes 2"}},
    {"-c base.ini run.workers=4 comm.name=replicated comm.hosts=0,1,1,0",
     {"comm 'replicated' works within one machine", "makes 2"}},
    {"-c base.ini run.workers=3 comm.hosts=2x2",
     {"comm.hosts = 2x2", "about 4 ranks", "the job has 3"}},
    {"-c base.ini run.workers=2 comm.hosts=1+", {"comm.hosts = 1+", "not of the form 2x2"}},
    {"-c base.ini run.workers=2 comm.hosts=0x2", {"comm.hosts = 0x2", "not of the form 2x2"}},
    {"-c base.ini run.workers=2 comm.hosts=1,0",
     {"comm.hosts = 1,0", "machine 1 comes before machine 0"}},
    {"-c base.ini run.workers=1024 comm.name=ps_cpu run.servers=1",
     {"command line: run.servers = 1 and run.workers = 1024 (command line), each with 1 learner",
      "at most 1024"}},
    {"-c base.ini comm.name=shm run.servers=1", {"comm 'shm' has no servers",
                                                 "leave run.servers out"}},
    {"-c base.ini comm.name=independent run.comm_cores=1",
     {"comm 'independent' has no work for communication cores", "leave run.comm_cores out"}},
    {"-c base.ini comm.name=shm run.mode=forward", {"run.mode = forward", "comm 'shm'",
                                                    "leave comm.name out"}},
    {"-c base.ini run.mode=forward eval.final=yes", {"run.mode = forward", "[eval]"}},
    {"-c base.ini run.prove=yes", {"comm 'independent' exchanges nothing", "leave run.prove out"}},
    {"-c base.ini optimizer.nesterov=yes optimizer.momentum=0",
     {"optimizer.nesterov", "optimizer.momentum = 0", "give a momentum"}},
    {"-c base.ini optimizer.name=adagrad optimizer.momentum=0.5",
     {"command line: optimizer.momentum = 0.5 does nothing: it needs",
      "optimizer.name = sgd, rmsprop, lars (command line: 'adagrad'); leave optimizer.momentum "
      "out"}},
    {"-c base.ini optimizer.beta1=0.9", {"optimizer.name = adam, adamw, lamb (default: 'sgd')"}},
    {"-c base.ini optimizer.name=adamw optimizer.decoupled_decay=no",
     {"optimizer.decoupled_decay = no beside optimizer.name = adamw", "optimizer.name = adam"}},
    {"-c base.ini comm.name=ps_async run.servers=1 optimizer.name=adam checkpoint.save=a",
     {"comm 'ps_async'", "how many updates of optimizer 'adam'", "leave checkpoint.save"}},
    {"-c base.ini comm.name=ps_cpu run.workers=2 comm.hosts=1+1 optimizer.clip_norm=1",
     {"comm 'ps_cpu': norms of whole tensors", "2 shards across machines", "run.servers = 1"}},
    {"-c base.ini comm.name=hierarchical run.workers=2 comm.shard=optimizer optimizer.name=lamb",
     {"optimizer.name needs the norms of whole tensors", "comm 'hierarchical'",
      "exchange sums of squares:", " shm"}},
    {"-c base.ini run.precision=fp64 comm.gradient=bf16",
     {"comm.gradient = bf16 cannot be used with run.precision = fp64", "leave comm.gradient out"}},
    {"-c base.ini run.workers=3 run.batch=30000",
     {"a global batch of 90000 samples", "data 'synthetic' with 50000", "make run.batch smaller"}},
    {"-c base.ini data.test_samples=0 eval.final=yes", {"no test set", "leave eval.every"}},
    {"-c base.ini run.steps=100000 eval.every=10",
     {"command line: eval.every = 10 makes 10000 evaluations in 100001 steps", "make it 25 or"}},
    {"-c base.ini run.epochs=2 eval.every=1", {"eval.every = 1 makes 50000"}},
    {"-c base.ini run.epochs=2 eval.every_epochs=1e-4",
     {"command line: eval.every_epochs = 0.0001 makes", "make it 0.00052 or more"}},
    {"-c base.ini run.steps=3 eval.every=5",
     {"command line: eval.every = 5 does nothing at step 5: the run ends at step 4 (run.steps: "
      "command line); leave eval.every out"}},
    {"-c base.ini run.steps=20 checkpoint.save=a checkpoint.at=10,1000",
     {"checkpoint.at = 10,1000 does nothing at step 1000: the run ends at step 21"}},
    {"-c base.ini run.steps=20 checkpoint.save=a checkpoint.every=22", {"at step 22: the run"}},
    {"-c base.ini comm_test.sizes=4KiB comm_test.max_bytes=8KiB",
     {"comm_test.max_bytes = 8KiB does nothing: comm_test.sizes (command line) lists them"}},
    {"-c base.ini eval.every=2 eval.every_epochs=1",
     {"eval.every_epochs is given beside eval.every (command line); give one"}},
    {"-c base.ini eval.every=2 eval.target=0.5 eval.target_loss=1",
     {"eval.target_loss is given beside eval.target (command line); give one"}},
    {"-c base.ini eval.final=yes eval.batches=1000000",
     {"command line: eval.batches = 1000000 of", "more than the test set of data 'synthetic'"}},
    {"-c base.ini model.name=resnet50 model.version=v2 model.zero_gamma=yes",
     {"model.zero_gamma = yes is for versions v1 and v1.5"}},
    {"-c base.ini run.seconds=1 optimizer.schedule=cosine",
     {"optimizer.schedule = cosine needs a run whose length is known", "run.steady_limit_s = 0"}},
    {"-c base.ini run.steps=2 optimizer.schedule=polynomial optimizer.end_rate=1",
     {"optimizer.end_rate = 1 is above the rate it decays from"}},
    {"-c base.ini optimizer.schedule=piecewise optimizer.decay_at=2,3 optimizer.rates=1",
     {"optimizer.rates has 1 rates, and optimizer.decay_at 2 epochs"}},
    {"-c base.ini optimizer.schedule=step optimizer.decay_at=2,1",
     {"optimizer.decay_at: '2,1' is not a rising list of epochs"}},
    {"-c base.ini run.workers=2 comm.name=local_sgd comm.late=1",
     {"command line: comm.late = 1 makes a synchronous strategy one step late",
      "comm 'local_sgd' is periodic(8)", "leave comm.late out"}},
    {"-c base.ini comm.late=1", {"comm 'independent' is none", "leave comm.late out"}},
    {"-c base.ini run.workers=2 comm.name=ring_tcp comm.inbox=1MB",
     {"comm.inbox = 1000000 bytes: at least 4 chunks (comm.chunk = 262144) must fit"}},
    {"-c base.ini run.workers=2 comm.name=hierarchical comm.hosts=1+1 comm.inbox=1MB",
     {"comm.inbox = 1000000 bytes: at least 4 chunks"}},
    {"-c base.ini run.workers=2 comm.name=ring_tcp comm.port=65535",
     {"comm.port = 65535: rank 1 would listen at 65536"}},
    {"-c base.ini run.workers=2 comm.name=hierarchical comm.hosts=1+1 comm.port=65535",
     {"comm.port = 65535: rank 1 would listen at 65536"}},
    {"-c base.ini run.workers=2 comm.name=ps_cpu comm.hosts=1+1 comm.port=65535",
     {"comm.port = 65535: rank 1 would listen at 65536"}},
    {"-c base.ini run.workers=3 comm.name=hierarchical comm.hosts=1+2 comm.port=65535",
     {"comm.port = 65535: rank 1 would listen at 65536"}}, /* rank 2 has no share */
    {"-c base.ini run.workers=2 run.servers=2 comm.name=ps_cpu comm.hosts=0,0,1,0 comm.port=65534",
     {"comm.port = 65534: rank 2 would listen at 65536"}}, /* rank 3 has no link */
    {"-c base.ini run.workers=2 comm.name=ps_async run.servers=1 comm.port=65534",
     {"comm.port = 65534: rank 2 would listen at 65536"}},
    {"-c base.ini run.workers=2 comm.name=shm model.name=lenet comm.bucket=4",
     {"command line: comm.bucket = 4 bytes makes ", " buckets of lenet", "at most 1048576"}},
    {"-c base.ini run.workers=2 comm.name=easgd comm.alpha=1",
     {"comm.alpha = 1 with 2 workers", "at most 0.666667"}},
    {"-c base.ini comm.name=sma comm.local_centers=yes",
     {"comm.local_centers = yes with one place", "take run.workers = 2"}},
    {"-c base.ini comm.name=ps_async run.servers=1 comm.softsync=2",
     {"comm.softsync is more than the workers"}},
    {0}};

/* What the strategy's plan decides. */
static const struct row plan_rows[] = {
    {"-c base.ini comm.bucket=1 model.name=mlp", {"comm.bucket = 1", "buckets", "1048576"}}, {0}};

static const struct row data_rows[] = {
    {"-c idx.ini data.path=missing",
     {"command line: data.path = missing: there is no such directory", "apt-get install"}},
    {"-c idx.ini data.path=file", {"file"}},
    {"-c idx.ini data.path=cut",
     {"cut/train-images-idx3-ubyte: byte 983: expected 5 more bytes", "truncated"}},
    {"-c idx.ini data.path=long", {"long/train-labels-idx1-ubyte: byte 20: expected the end"}},
    {"-c idx.ini data.path=counts",
     {"counts/train-labels-idx1-ubyte: byte 4: expected 12 labels", "found 11"}},
    {"-c idx.ini data.path=magic",
     {"magic/t10k-images-idx3-ubyte: byte 0: expected magic number 0x00000803"}},
    {"-c idx.ini data.path=sizes",
     {"sizes/t10k-images-idx3-ubyte: byte 8: expected images of 9 x 9", "found 8 x 9"}},
    {"-c idx.ini data.path=hostile", {"hostile/train-images-idx3-ubyte: byte 4", "4294967295"}},
    {"-c idx.ini data.path=gzip_cut",
     {"gzip_cut/train-images-idx3-ubyte.gz: byte ", "of the gzip file"}},
    {"-c idx.ini data.path=gzip_inside",
     {"gzip_inside/train-images-idx3-ubyte.gz: byte ", "of the uncompressed content"}},
    {"-c idx.ini run.batch=13", {"a global batch of 13 samples", "data 'idx' with 12"}},
    {"-c idx.ini run.workers=2 run.batch=7", {"a global batch of 14 samples", "run.batch smaller"}},
    {"-c idx.ini model.nclass=11", {"model.nclass = 11, but data 'idx' has 5 classes",
                                    "leave model.nclass out"}},
    {"-c idx.ini data.samples=10", {"unknown option 'samples' for data 'idx'"}},
    {0}};

/* A name that a file may have, but not the one in which it is written first. */
#define X50 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X250 X50 X50 X50 X50 X50

static const struct row place_rows[] = {
    {"-c base.ini --output " X250, {"results cannot be written to xxx", "File name too long"}},
    {"-c base.ini checkpoint.save=" X250, {"command line: checkpoint.save: the name is too long"}},
    {"-c base.ini run.trace=" X250, {"command line: run.trace: the name is too long"}},
    {"-c base.ini run.results=file", {"results cannot be written to file", "run.results=DIR"}},
    {"-c base.ini run.results=file/deeper", {"file/deeper", "Not a directory", "--output"}},
    {"-c base.ini --output file/x.json", {"results cannot be written to file", "--output FILE"}},
    {"-c base.ini --output folder", {"folder is a directory", "name a file in it"}},
    {"-c base.ini --output", {"--output needs a file", "usage: ", "`dpbench help run` says more"}},
    {"-c base.ini --output a --output b", {"--output is given twice", "usage: "}},
    {"-c base.ini --json --json", {"--json is given twice", "usage: "}},
    {"-c base.ini -c base.ini", {"-c is given twice", "usage: "}},
    {"-c base.ini --jsn", {"unknown option '--jsn'", "usage: "}},
    {"-c", {"-c needs a file", "usage: "}},
    {"run", {"give -c FILE.ini", "usage: "}},
    {"", {"nothing to do", "usage: "}},
    {"quickstart", {"unknown command 'quickstart'", "is run by 'run NAME'", "usage: "}},
    {"chek -c base.ini", {"unknown command 'chek'", "did you mean 'check'?", "usage: "}},
    {"check -c base.ini --json", {"unknown option '--json'", "usage: "}},
    {"plugins --jsn", {"unknown argument '--jsn'", "usage: "}},
    {"help run comm", {"one word at a time", "usage: "}},
    {"help matrix shm sma", {"takes one strategy", "usage: "}},
    {"help matrix --csv --markdown", {"takes one strategy, and --markdown or --csv"}},
    {"help matrix smh", {"no strategy is called 'smh'", "`dpbench help comm` lists them"}},
    {"rerun", {"which result", "usage: "}},
    {0}};
/* clang-format on */

TEST(test_files)
{
    expect_all_refused(file_rows);
}

TEST(test_plugins)
{
    expect_all_refused(plugin_rows);
}

TEST(test_values)
{
    expect_all_refused(value_rows);
}

TEST(test_combinations)
{
    expect_all_refused(combination_rows);
    expect_all_refused(plan_rows);
}

#if defined(__x86_64__)
/* oneDNN is told that the processor has AVX2 alone. */
TEST(test_processor_without_bf16)
{
    static const char why[] = "oneDNN has no bf16 on this processor";
    static const struct row rows[] = {
        {"-c bf16.ini",
         {"bf16.ini:3: device 'cpu' does not compute in bf16",
          "set run.precision to one that it has: fp32 (", why}},
        {"check -c bf16.ini", {"bf16.ini:3: device 'cpu' does not compute in bf16", why}},
        {0}};
    struct command command;
    if (!have_cpu_device()) {
        print_message("needs the cpu device\n");
        skip();
    }
    sandbox_write("bf16.ini", "[run]\nsteps = 2\nprecision = bf16\n[model]\nname = tiny\n"
                              "[data]\nname = synthetic\n[comm]\nname = shm\n");
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    expect_all_refused(rows);
    dpbench(&command, deadline_s, "plugins");
    expect_part(command.out, why);
    dpbench_ends(&command, deadline_s, 0, "check -c bf16.ini run.precision=fp32");
    unsetenv("ONEDNN_MAX_CPU_ISA");
}
#endif

TEST(test_data)
{
    expect_all_refused(data_rows);
}

TEST(test_places_and_usage)
{
    expect_all_refused(place_rows);
}

/* `check` refuses the same without starting anything. */
TEST(test_check_refuses_too)
{
    static const struct row rows[] = {
        {"check -c key.ini", {"key.ini:6: unknown option 'bukcet'"}},
        {"check -c idx.ini data.path=cut", {"cut/train-images-idx3-ubyte: byte 983"}},
        {"check -c base.ini run.workers=3 run.batch=30000", {"a global batch of 90000"}},
        {"check -c base.ini run.results=file", {"results cannot be written to file"}},
        {0}};
    expect_all_refused(rows);
    for (const struct row *row = combination_rows; row->arguments; row++)
        expect_refused("check ", row);
}

/* Data are opened once for the cells that have the same, and for no others. */
TEST(test_check_opens_the_data_of_each_cell)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 2,
                 "check -c idx.ini sweep.run.batch=1,2 sweep.data.path=good,cut");
    EXPECT_WORDS("check of a sweep", command.out,
                 "run.batch=1 data.path=cut: refused: ", "cut/train-images-idx3-ubyte: byte 983",
                 "... and 1 more", "plan: 2 cells");
}

/* No mistake, but a number that must not pass for one of a machine with that many cores. */
static void expect_oversubscribed(const char *setting)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0, "-c base.ini comm.name=shm %s=%ld --output over.json",
                 setting, sysconf(_SC_NPROCESSORS_ONLN) + 1);
    assert_non_null(strstr(command.out, "OVERSUBSCRIBED"));
    assert_non_null(strstr(command.out, "warning       oversubscribed: "));
    assert_non_null(strstr(command.err, "warning: "));

    json_t *result = own_json(json_load_file("over.json", 0, NULL));
    bool warned = false;
    size_t i;
    const json_t *warning;
    assert_true(json_is_true(json_at(result, "world.oversubscribed")));
    json_array_foreach(json_at(result, "warnings"), i, warning) warned |=
        strcmp(json_text_at(warning, "code"), "oversubscribed") == 0 &&
        strstr(json_text_at(warning, "text"), "cores") != NULL;
    assert_true(warned);
    unlink("over.json");
}

TEST(test_more_workers_than_cores)
{
    struct command command;
    expect_oversubscribed("run.workers");
    dpbench(&command, deadline_s, "-c base.ini comm.name=shm run.workers=%ld run.comm_cores=1",
            sysconf(_SC_NPROCESSORS_ONLN));
    EXPECT_WORDS("cores for communication", command.err,
                 "warning: ", "of 1 thread and a communication core each and 0 servers");
}

TEST(test_more_helpers_than_cores)
{
    struct command command;
    expect_oversubscribed("data.threads");
    dpbench_ends(&command, deadline_s, 0, "-c base.ini data.threads=1 run.workers=1");
    assert_null(strstr(command.out, "OVERSUBSCRIBED"));
}

/* ----  -------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    unsetenv("DPBENCH_PLUGIN_PATH");
    sandbox_write("base.ini", "%s", base_ini);
    sandbox_write("idx.ini", "%s[data]\nname = idx\npath = good\n", base_ini);
    for (size_t i = 0; i < sizeof ini_files / sizeof *ini_files; i++)
        sandbox_write(ini_files[i].name, "%s[device]\nname = reference\n", ini_files[i].text);
    write_odd_files();
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        write_idx_set(&damages[i]);
    return result;
}

/* `sh -c "BEFORE; dpbench -c base.ini SETTINGS"`. */
static void run_after(struct command *command, const char *before, const char *settings)
{
    char line[5000];
    snprintf(line, sizeof line, "%s && exec %s/dpbench -c base.ini %s", before, build_directory(),
             settings);
    const char *const arguments[] = {"/bin/sh", "-c", line, NULL};
    command_run(command, 60, arguments, NULL);
}

/* A user who may have 20 threads (root may have any number), and a library that ends the process
 * where it cannot start one. */
TEST(test_few_threads)
{
    struct command command;
    char line[5000];
    snprintf(
        line, sizeof line,
        "setpriv --reuid %d --clear-groups sh -c '[ -r base.ini -a -r %s/plugins/device_cpu.so ] "
        "|| exit 77; exec prlimit --nproc=20 %s/dpbench -c base.ini run.results= "
        "device.name=cpu device.threads=40'",
        100000 + (int)getpid(), build_directory(), build_directory());
    const char *const arguments[] = {"/bin/sh", "-c", line, NULL};
    assert_int_equal(chmod(".", 0755), 0);
    command_run(&command, deadline_s, arguments, NULL);
    if (command.exit_code == 77 || strstr(command.err, "setpriv: "))
        skip(); /* not root; no such device; a directory that root alone reads */
    assert_int_equal(command.exit_code, 1);
    EXPECT_WORDS("threads", command.err, "a library has ended the process: it cannot start threads",
                 "raise `ulimit -u`, or the control group's pids.max");
}

/* A machine that lets a process have few open files, and one without /proc. */
TEST(test_poor_machine)
{
    struct command command;
    run_after(&command, "ulimit -n 12", "run.workers=2");
    assert_int_equal(command.exit_code, 1);
    assert_non_null(strstr(command.err, "this process may have 12 open files: raise `ulimit -n`"));
    run_after(&command, "ulimit -S -n 20", "run.workers=24 data.samples=640"); /* it raises it */
    assert_int_equal(command.exit_code, 0);
#if !defined(__SANITIZE_ADDRESS__) /* whose own runtime does not start without /proc */
    run_after(&command, "unshare -m true", "");
    bool may_unshare = command.exit_code == 0;
    if (!may_unshare)
        return;
    char line[5000];
    snprintf(line, sizeof line, "umount -l /proc && %s/dpbench -c base.ini", build_directory());
    const char *const arguments[] = {"/usr/bin/env", "unshare", "-m", "sh", "-c", line, NULL};
    command_run(&command, 60, arguments, NULL);
    assert_int_equal(command.exit_code, 2);
    assert_non_null(strstr(command.err, "/proc is not mounted"));
#endif
}

TEST_MAIN(set_up, sandbox_teardown)
