const paths = {
  home: "M3 9.5 10 3.5l7 6M5 8.5V16h10V8.5",
  events: "M4 5h12M4 10h12M4 15h7",
  streams: "M10 3 17 6.5 10 10 3 6.5zM3 10l7 3.500 7-3.500M3 13.500 10 17l7-3.500",
  projections: "M3 4.500h14L12 10.500V16l-4-2v-3.500z",
  rebuilds: "M16 7A6.500 6.500 0 0 0 4 8M4 4v4h4M4 13a6.500 6.500 0 0 0 12-1M16 16v-4h-4",
  delivery: "M3 10 17 3.500 12.500 17 9.500 11zM9.500 11 17 3.500",
  audit: "M5 3.500h10v13H5zM7.500 7h5M7.500 10h5M7.500 13h3",
  people: "M10 9.500a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM4 16.500c0-3 2.700-4.500 6-4.500s6 1.500 6 4.500",
  proof: "M4 10.500l4 4 8-9",
  admin: "M10 3l6 2.200V10c0 3.500-2.600 6-6 7-3.400-1-6-3.500-6-7V5.200z",
  menu: "M3 6h14M3 10h14M3 14h14",
};

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
