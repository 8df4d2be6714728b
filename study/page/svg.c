/* svg.c - see svg.h. */
#include "study/page/svg.h"

#include <math.h>
#include <string.h>

#include "study/page/markup.h"

enum {
    HEIGHT = 216,
    TOP = 24, /* below the title of the y axis */
    BOTTOM = 36,
    MARGIN = 8,
    ROW = 20,
    MOST_ROUND = 12, /* round numbers on an axis */
    MOST_LABEL = 22, /* characters */
    TICK = 24
};
/* The width of a digit of a wide font at the size of the style. */
static const double character = 6.8;

const char *dpb_svg_color(int color)
{
    static const char *const names[DPB_SVG_COLORS] = {"c0", "c1", "c2", "c3",
                                                      "c4", "c5", "c6", "c7"};
    return color < 0 ? "cn" : names[color % DPB_SVG_COLORS];
}

/* ---- axes ---------------------------------------------------------------------------------- */

struct axis {
    double low, high;      /* in the unit of the values; of a logarithmic axis their log2 */
    double from_px, to_px; /* where these are */
    const double *ticks;   /* `round`, or the plot's own; labels that overlap are left out */
    double round[MOST_ROUND];
    size_t n_ticks;
    double step; /* between ticks */
    bool log;
};

static double place(const struct axis *axis, double value)
{
    const double x = axis->log ? log2(value) : value;
    return axis->from_px +
           (x - axis->low) / (axis->high - axis->low) * (axis->to_px - axis->from_px);
}

/* Round numbers: 1, 2 or 5 times a power of ten. */
static void set_ticks(struct axis *axis, double wanted)
{
    const double rough = (axis->high - axis->low) / wanted, power = pow(10, floor(log10(rough)));
    const double digit = rough / power;
    axis->step = power * (digit < 1.4 ? 1 : digit < 3.2 ? 2 : digit < 7 ? 5 : 10);
    const double first = ceil(axis->low / axis->step - 1e-9);
    axis->ticks = axis->round;
    axis->n_ticks = 0;
    while (axis->n_ticks < MOST_ROUND) {
        const double tick = (first + (double)axis->n_ticks) * axis->step;
        if (!(tick <= axis->high + 1e-9 * axis->step))
            break;
        axis->round[axis->n_ticks++] = tick;
    }
}

/* False: a range that cannot be drawn. A range of one value is widened. */
static bool axis_of(double low, double high, bool from_zero, double wanted, struct axis *axis)
{
    if (from_zero) {
        low = fmin(low, 0);
        high = fmax(high, 0);
    }
    if (!(high > low)) {
        const double half = low != 0 ? fabs(low) * 0.1 : 1;
        high += half;
        low -= from_zero && low == 0 ? 0 : half;
    }
    if (!isfinite(low) || !isfinite(high) || !isfinite(high - low) || !(high - low > 1e-300))
        return false;
    const double room = 0.05 * (high - low);
    *axis = (struct axis){.low = from_zero && low == 0 ? 0 : low - room, .high = high + room};
    set_ticks(axis, wanted);
    return true;
}

/* Ticks at powers of two. */
static bool log_axis_of(double low, double high, struct axis *axis)
{
    *axis = (struct axis){.low = log2(low) - 0.2, .high = log2(high) + 0.2, .log = true};
    if (!(low > 0) || !isfinite(axis->low) || !isfinite(axis->high))
        return false;
    const double step = ceil((axis->high - axis->low) / (MOST_ROUND - 2));
    axis->ticks = axis->round;
    while (axis->n_ticks < MOST_ROUND) {
        const double tick = ceil(axis->low) + (double)axis->n_ticks * step;
        if (!(tick <= axis->high))
            break;
        axis->round[axis->n_ticks++] = exp2(tick);
    }
    return true;
}

/* One suffix and one number of decimals for all ticks of an axis. */
static void tick_text(const struct axis *axis, double value, char text[TICK])
{
    static const char *const suffixes[] = {"", "k", "M", "G", "T"};
    double most = fmax(fabs(axis->low), fabs(axis->high)), scale = 1;
    size_t i = 0;
    if (axis->log || value == 0 || most < 1e-3 || most >= 1e16) {
        snprintf(text, TICK, "%g", value + 0.0); /* no -0 */
        return;
    }
    for (; most / scale >= 1e4 && i + 1 < sizeof suffixes / sizeof suffixes[0]; i++)
        scale *= 1000;
    const double decimals = fmin(6, fmax(0, -floor(log10(axis->step / scale) + 1e-9)));
    snprintf(text, TICK, "%.*f%s", (int)decimals, value / scale, suffixes[i]);
}

static double width_of_ticks(const struct axis *axis)
{
    double most = 0;
    for (size_t i = 0; i < axis->n_ticks; i++) {
        char text[TICK];
        tick_text(axis, axis->ticks[i], text);
        most = fmax(most, character * (double)strlen(text));
    }
    return most;
}

/* ---- parts of all plots -------------------------------------------------------------------- */

static void begin(const char *name, double height, FILE *out)
{
    fprintf(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", DPB_SVG_WIDTH, height);
    dpb_markup(out, "%s\">\n", name);
}

static void write_at(double x, double y, const char *anchor, const char *text, FILE *out)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\"%s%s%s>", x, y, anchor[0] ? " text-anchor=\"" : "",
            anchor, anchor[0] ? "\"" : "");
    dpb_markup(out, "%s</text>\n", text);
}

static void draw_line(double x1, double y1, double x2, double y2, const char *class, FILE *out)
{
    fprintf(out, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", class, x1, y1, x2, y2);
}

/* Writes the text of a tick; half its width. */
static double text_of(const struct axis *axis, size_t tick, char text[TICK])
{
    tick_text(axis, axis->ticks[tick], text);
    return 0.5 * character * (double)strlen(text);
}

/* Ticks, their lines from `top` to `bottom`, and the title. A number that would touch its
 * neighbour's, or the last one's, is left out. */
static void draw_x_axis(const struct axis *axis, bool grid, double top, double bottom,
                        const char *title, FILE *out)
{
    char text[TICK];
    const size_t last = axis->n_ticks - 1;
    double free_px = -1, last_px = INFINITY;
    if (axis->n_ticks > 0)
        last_px = place(axis, axis->ticks[last]) - text_of(axis, last, text);
    draw_line(axis->from_px, bottom, axis->to_px, bottom, "axis", out);
    for (size_t i = 0; i < axis->n_ticks; i++) {
        const double x = place(axis, axis->ticks[i]), half = text_of(axis, i, text);
        draw_line(x, grid ? top : bottom, x, bottom + 3, grid ? "grid" : "axis", out);
        if (x - half < free_px || (i < last && x + half + 2 > last_px))
            continue;
        write_at(x, bottom + 14, "middle", text, out);
        free_px = x + half + 2;
    }
    write_at(0.5 * (axis->from_px + axis->to_px), bottom + 28, "middle", title, out);
}

/* ---- lines --------------------------------------------------------------------------------- */

struct range {
    double low, high;
};

static void widen(struct range *range, double value)
{
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

static bool is_point(const struct dpb_svg_series *series, size_t i)
{
    return isfinite(series->x[i]) && isfinite(series->y[i]);
}

static size_t find_ranges(const struct dpb_svg_plot *plot, struct range *x, struct range *y)
{
    size_t n = 0;
    *x = *y = (struct range){INFINITY, -INFINITY};
    for (size_t s = 0; s < plot->n_series; s++) {
        const struct dpb_svg_series *series = &plot->series[s];
        for (size_t i = 0; i < series->n; i++) {
            if (!is_point(series, i))
                continue;
            n++;
            widen(x, series->x[i]);
            widen(y, series->y[i]);
        }
    }
    if (!plot->x_ticks && x->low > 0 && x->low < 0.2 * x->high)
        x->low = 0;
    return n;
}

static bool make_axes(const struct dpb_svg_plot *plot, struct axis *x, struct axis *y)
{
    struct range range_x, range_y;
    if (find_ranges(plot, &range_x, &range_y) < 2 || !(range_x.high > range_x.low))
        return false;
    if (plot->y_log ? !log_axis_of(range_y.low, range_y.high, y)
                    : !axis_of(range_y.low, range_y.high, plot->y_from_zero, 5, y))
        return false;
    y->from_px = HEIGHT - BOTTOM;
    y->to_px = TOP;
    const double left = width_of_ticks(y) + 6 + 1;
    *x = (struct axis){.low = plot->x_log ? log2(range_x.low) : range_x.low,
                       .high = plot->x_log ? log2(range_x.high) : range_x.high,
                       .from_px = left,
                       .to_px = DPB_SVG_WIDTH - MARGIN,
                       .log = plot->x_log};
    if (!isfinite(x->low) || !isfinite(x->high - x->low))
        return false;
    if (!plot->x_ticks) {
        set_ticks(x, 5);
        return true;
    }
    const double room = 0.04 * (x->high - x->low); /* for marks at both ends */
    x->low -= room;
    x->high += room;
    x->step = 1;
    x->ticks = plot->x_ticks;
    x->n_ticks = plot->n_x_ticks;
    return true;
}

static void draw_y_axis(const struct axis *x, const struct axis *y, const char *title, FILE *out)
{
    for (size_t i = 0; i < y->n_ticks; i++) {
        char text[TICK];
        const double at = place(y, y->ticks[i]);
        tick_text(y, y->ticks[i], text);
        draw_line(x->from_px, at, x->to_px, at, "grid", out);
        write_at(x->from_px - 6, at + 4, "end", text, out);
    }
    write_at(0, 11, "", title, out);
}

/* The points of a line that fall into one column of the plot. */
struct column {
    long at;
    double low, high, x;
    bool rises; /* the largest came after the least */
    size_t n;
};

static void flush(struct column *column, bool *down, FILE *out)
{
    if (column->n == 0)
        return;
    fprintf(out, "%c%.1f %.1f", *down ? 'L' : 'M', column->x,
            column->rises ? column->low : column->high);
    if (column->high > column->low)
        fprintf(out, "L%.1f %.1f", column->x, column->rises ? column->high : column->low);
    *down = true;
    column->n = 0;
}

/* A gap within a column or between neighbours is too narrow to be seen. */
static void draw_thinned(const struct dpb_svg_series *series, const struct axis *x,
                         const struct axis *y, FILE *out)
{
    struct column column = {.n = 0};
    bool down = false, broken = false;
    for (size_t i = 0; i < series->n; i++) {
        if (!is_point(series, i)) {
            broken = true;
            continue;
        }
        const double at_x = place(x, series->x[i]), at_y = place(y, series->y[i]);
        if (column.n > 0 && lround(at_x) != column.at) {
            flush(&column, &down, out);
            down = !broken || lround(at_x) == column.at + 1;
            broken = false;
        }
        if (column.n++ == 0)
            column = (struct column){lround(at_x), at_y, at_y, at_x, false, 1};
        if (at_y > column.high)
            column.rises = true;
        if (at_y < column.low)
            column.rises = false;
        column.low = fmin(column.low, at_y);
        column.high = fmax(column.high, at_y);
    }
    flush(&column, &down, out);
}

static void draw_points(const struct dpb_svg_series *series, const struct axis *x,
                        const struct axis *y, FILE *out)
{
    bool down = false;
    for (size_t i = 0; i < series->n; i++) {
        const bool is = is_point(series, i);
        if (is)
            fprintf(out, "%c%.1f %.1f", down ? 'L' : 'M', place(x, series->x[i]),
                    place(y, series->y[i]));
        down = is;
    }
}

static void draw_marks(const struct dpb_svg_series *series, const struct axis *x,
                       const struct axis *y, FILE *out)
{
    for (size_t i = 0; i < series->n; i++) {
        if (!is_point(series, i))
            continue;
        fprintf(out, "<circle class=\"%s %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n",
                series->hollow && series->hollow[i] ? "hollow" : "dot",
                dpb_svg_color(series->color), place(x, series->x[i]), place(y, series->y[i]));
    }
}

bool dpb_svg_lines(const struct dpb_svg_plot *plot, FILE *out)
{
    struct axis x, y;
    if (!make_axes(plot, &x, &y))
        return false;
    if (!out)
        return true;
    begin(plot->name, HEIGHT, out);
    if (plot->shaded_to > 0)
        fprintf(out, "<rect class=\"shade\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n",
                x.from_px, TOP, place(&x, fmin(plot->shaded_to, x.high)) - x.from_px,
                HEIGHT - BOTTOM - TOP);
    draw_y_axis(&x, &y, plot->y_title, out);
    draw_x_axis(&x, false, TOP, HEIGHT - BOTTOM, plot->x_title, out);
    for (size_t s = 0; s < plot->n_series; s++) {
        const struct dpb_svg_series *series = &plot->series[s];
        fprintf(out, "<path class=\"line %s%s\" d=\"", dpb_svg_color(series->color),
                series->dashed ? " dashed" : "");
        if (series->n > 2 * DPB_SVG_WIDTH)
            draw_thinned(series, &x, &y, out);
        else
            draw_points(series, &x, &y, out);
        fputs("\"/>\n", out);
        if (series->marked)
            draw_marks(series, &x, &y, out);
    }
    fputs("</svg>\n", out);
    return true;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Cuts a label between two characters of UTF-8. Returns how many are left. */
static size_t shorten(const char *label, char text[8 * MOST_LABEL])
{
    size_t n = 0, at = 0;
    for (; label[at] != '\0' && at + 8 < 8 * MOST_LABEL; at++) {
        if (((unsigned char)label[at] & 0xc0) != 0x80 && n++ == MOST_LABEL) {
            snprintf(text + at, 4, "\xe2\x80\xa6");
            return n;
        }
        text[at] = label[at];
    }
    text[at] = '\0';
    return n;
}

/* How far a row reaches: the value of a dot, or the sum of a bar. */
static double end_of(const struct dpb_svg_row *row, bool bars)
{
    double sum = 0;
    for (size_t i = 0; i < DPB_SVG_PARTS; i++)
        sum += row->parts[i] > 0 ? row->parts[i] : 0;
    return bars ? sum : row->value;
}

static bool make_rows_axis(const struct dpb_svg_rows *plot, struct axis *x)
{
    double most = 0, high = 0, left = 0, right = 0;
    for (size_t i = 0; i < plot->n_rows; i++) {
        char label[8 * MOST_LABEL];
        const double end = end_of(&plot->rows[i], plot->bars);
        most = isfinite(end) ? fmax(most, end) : most;
        high = !plot->bars && isfinite(plot->rows[i].high) ? fmax(high, plot->rows[i].high) : high;
        left = fmax(left, character * (double)shorten(plot->rows[i].label, label));
        right = fmax(right, character * (double)strlen(plot->rows[i].text));
    }
    most = fmax(most, fmin(high, 1.5 * most));
    if (!(most > 0) || !axis_of(0, most, true, 4, x))
        return false;
    x->from_px = left + 8;
    x->to_px = DPB_SVG_WIDTH - right - MARGIN;
    return true;
}

static void draw_dot(const struct dpb_svg_row *row, const struct axis *x, double y, FILE *out)
{
    const char *color = dpb_svg_color(row->color);
    if (!isfinite(row->value))
        return;
    if (isfinite(row->low) && isfinite(row->high)) {
        const double low = place(x, fmin(fmax(row->low, 0), x->high));
        const double high = place(x, fmin(row->high, x->high));
        fprintf(out, "<path class=\"line %s\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv7", color, low, y, high,
                low, y - 3.5);
        if (row->high <= x->high)
            fprintf(out, "M%.1f %.1fv7", high, y - 3.5);
        fputs("\"/>\n", out);
    }
    fprintf(out, "<circle class=\"%s %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n",
            row->hollow ? "hollow" : "dot", color, place(x, row->value), y);
}

static void draw_bar(const struct dpb_svg_row *row, const struct axis *x, double y, FILE *out)
{
    double from = 0;
    for (size_t i = 0; i < DPB_SVG_PARTS; i++) {
        if (!(row->parts[i] > 0))
            continue;
        const double x1 = place(x, from), x2 = place(x, from + row->parts[i]);
        fprintf(out, "<rect class=\"p%zu\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"13\"/>\n",
                i, x1, y - 6.5, x2 - x1);
        from += row->parts[i];
    }
}

bool dpb_svg_rows_draw(const struct dpb_svg_rows *plot, FILE *out)
{
    struct axis x;
    if (!make_rows_axis(plot, &x))
        return false;
    if (!out)
        return true;
    const double bottom = TOP + ROW * (double)plot->n_rows;
    begin(plot->name, bottom + BOTTOM, out);
    draw_x_axis(&x, true, TOP, bottom, plot->x_title, out);
    write_at(0, 11, "", plot->title, out);
    for (size_t i = 0; i < plot->n_rows; i++) {
        char label[8 * MOST_LABEL];
        const double y = TOP + ROW * ((double)i + 0.5);
        shorten(plot->rows[i].label, label);
        write_at(0, y + 4, "", label, out);
        write_at(DPB_SVG_WIDTH, y + 4, "end", plot->rows[i].text, out);
        if (plot->bars)
            draw_bar(&plot->rows[i], &x, y, out);
        else
            draw_dot(&plot->rows[i], &x, y, out);
    }
    fputs("</svg>\n", out);
    return true;
}
