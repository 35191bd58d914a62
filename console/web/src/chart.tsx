import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { useStore } from "./store";
import { theme } from "./theme";

interface ChartProps {
  /** What the chart shows, for those who cannot see it. A page has the figures as text, too. */
  label: string;
  /** In seconds since 1970, ascending. */
  times: number[];
  values: number[];
  kind: "bars" | "line";
  height?: number;
  /** Writes a value, on the axis and under the pointer. */
  format: (value: number) => string;
  /** Writes a time under the pointer. */
  formatTime: (seconds: number) => string;
}

/** A figure over time. The value under the pointer is written above it, or else the newest. */
export function Chart({ label, times, values, kind, height = 180, format, formatTime }: ChartProps) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const latest = useRef({ format });
  latest.current = { format };
  const [pointed, setPointed] = useState<number>();
  const drawn = `${useStore(theme)} ${times.join()} ${values.join()}`;
  useEffect(() => {
    const element = frame.current!;
    const created = new uPlot(optionsOf(kind, element.clientWidth, height, (value) => latest.current.format(value), setPointed), [times, values], element);
    plot.current = created;
    const resized = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height }));
    resized.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => created.redraw(false, true);
    scheme.addEventListener("change", redraw);
    return () => {
      resized.disconnect();
      scheme.removeEventListener("change", redraw);
      created.destroy();
    };
  }, [kind, height]);
  useEffect(() => plot.current?.setData([times, values]), [drawn]);
  const at = Math.min(pointed ?? values.length - 1, values.length - 1);
  return (
    <div class="chart">
      <p class="reading">{at >= 0 && <><strong>{format(values[at]!)}</strong> <span class="muted">{formatTime(times[at]!)}</span></>}</p>
      <div ref={frame} role="img" aria-label={label} />
    </div>
  );
}

const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name);

function optionsOf(kind: ChartProps["kind"], width: number, height: number, format: ChartProps["format"], point: (index?: number) => void): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => colour("--muted"), font: "12px system-ui, sans-serif",
    grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false },
  };
  return {
    width, height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: kind === "line", size: 7 } },
    tzDate: (seconds) => (kind === "bars" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    scales: { x: { range: (_, first, last) => (kind === "bars" ? [first - halfDay, last + halfDay] : [first, last]) }, y: { range: (_, __, most) => [0, Math.max(most * 1.1, 1)] } },
    axes: [
      { ...axis, grid: { show: false }, space: 80, size: 26, values: times(kind) },
      { ...axis, size: 56, values: (_, ticks) => ticks.map(format), incrs: increments },
    ],
    series: [
      {},
      {
        stroke: () => colour("--accent"), width: kind === "line" ? 1.5 : 0, points: { show: false },
        fill: () => (kind === "line" ? colour("--accent-soft") : colour("--accent")),
        ...(kind === "bars" ? { paths: uPlot.paths.bars!({ size: [0.7, 36], radius: 0.15 }) } : {}),
      },
    ],
    hooks: { setCursor: [(u) => point(u.cursor.idx ?? undefined)] },
  };
}

/** In seconds: a bar is as wide as a day. */
const halfDay = 43_200;

/** All figures are integers. */
const increments = Array.from({ length: 16 }, (_, exponent) => [1, 2, 5].map((digit) => digit * 10 ** exponent)).flat();

const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", timeZone: "UTC" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function times(kind: ChartProps["kind"]): uPlot.Axis.DynamicValues {
  const shown = kind === "bars" ? day : clock;
  return (_, ticks) => ticks.map((seconds, i) => {
    const text = shown.format(seconds * 1000);
    return i > 0 && shown.format(ticks[i - 1]! * 1000) === text ? "" : text;
  });
}
