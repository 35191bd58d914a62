import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows rendered beyond each edge. */
const margin = 10;

interface Props<T> {
  label: string;
  items: T[];
  /** How many items were put before the others. A reader who has scrolled down keeps his place. */
  added: number;
  keyOf: (item: T) => string;
  row: (item: T) => ComponentChildren;
  /** Called when the end is near; undefined if there are no more items. */
  atEnd?: () => void;
}

/** A list that renders only the rows in view. All rows have the height that the style sheet gives as --row. */
export function VirtualList<T>({ label, items, added, keyOf, row, atEnd }: Props<T>) {
  const frame = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800, row: 36 });
  const measure = () => {
    if (!frame.current) return; // the list is gone
    const { scrollTop, clientHeight } = frame.current;
    const height = parseFloat(getComputedStyle(frame.current).getPropertyValue("--row")) || 36;
    setView((v) => (v.top === scrollTop && v.height === clientHeight && v.row === height ? v : { top: scrollTop, height: clientHeight, row: height }));
  };
  useLayoutEffect(measure, []);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (added > 0 && frame.current!.scrollTop > 0) frame.current!.scrollTop += added * view.row;
    measure();
  }, [items]);
  const first = Math.max(0, Math.floor(view.top / view.row) - margin);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / view.row) + margin);
  useEffect(() => {
    if (last > items.length - margin) atEnd?.();
  }, [last, items.length]);
  return (
    <div class="virtual" ref={frame} onScroll={measure} tabIndex={0} role="region" aria-label={label}>
      <ol style={{ height: `${items.length * view.row}px` }}>
        {items.slice(first, last).map((item, i) => (
          <li key={keyOf(item)} aria-posinset={first + i + 1} aria-setsize={items.length} style={{ transform: `translateY(${(first + i) * view.row}px)` }}>
            {row(item)}
          </li>
        ))}
      </ol>
    </div>
  );
}
