-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @limit int64: 10
-- @v1 mssql.VarCharMax: 20323530303133
-- @v2 mssql.NVarCharMax: customer
-- @v3 mssql.NVarCharMax: name
-- @v4 mssql.VarCharMax: 20323530303133
-- @v5 mssql.NVarCharMax: status
set nocount on;
set lock_timeout 10000;
declare @usable int = case when not exists (select * from manifold_documents.[document_keys] as k inner join manifold_documents.[documents] as t on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes and t.version = k.position
where k.tenant_id = @tenant and k.build = @build and k.id_bytes = 0x and k.place = 0) then 0
when (select count(*) from (select top (1001) k.id_bytes, k.sort_key from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.place = 2
and k.sort_key > convert(varbinary(1002), @v1, 2) and k.sort_key < 0x30) as k) > 1000 then -1
else 1 end;
if @usable = 1
begin
select f.keyed, t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from (select case when exists (select * from manifold_documents.[document_keys] as k inner join manifold_documents.[documents] as t on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes and t.version = k.position
where k.tenant_id = @tenant and k.build = @build and k.id_bytes = 0x and k.place = 0) then 1 else 0 end as keyed) as f
left join (
select top (@limit) k.id_bytes, k3.k as s1
from (
select top (9223372036854775807) k.id_bytes, k.sort_key from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.place = 2
and k.sort_key > convert(varbinary(1002), @v1, 2) and k.sort_key < 0x30
order by k.id_bytes
) as k
inner join manifold_documents.[documents] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = k.id_bytes
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v2 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v2)) as p1
outer apply (select top (1) j.type, j.value from openjson(case when p1.type = 5 then p1.value end) as j where j.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v3)) as p2
outer apply (
	select convert(varbinary(400), case
		when d.digits = '' then ' 1'
		when u.negative = 1 then ' 0' + right('000' + convert(varchar(11), 5000 - d.magnitude), 4) + translate(d.digits, '0123456789', '9876543210') + '~'
		else ' 2' + right('000' + convert(varchar(11), 5000 + d.magnitude), 4) + d.digits
	end) as k
	from (select case when p2.type = 2 then convert(varchar(390), p2.value) end as number) as n
	cross apply (select case when left(n.number, 1) = '-' then 1 else 0 end as negative,
		case when left(n.number, 1) = '-' then substring(n.number, 2, 390) else n.number end as number) as u
	cross apply (select left(u.number, charindex('e', u.number + 'e') - 1) as mantissa,
		coalesce(try_convert(int, substring(u.number, charindex('e', u.number + 'e') + 1, 5)), 0) as exponent) as e
	cross apply (select replace(e.mantissa, '.', '') as digits, charindex('.', e.mantissa + '.') - 1 as whole) as m
	cross apply (select patindex('%[^0]%', m.digits + 'x') - 1 as zeros) as z
	cross apply (select replace(rtrim(replace(substring(m.digits, z.zeros + 1, 390), '0', ' ')), ' ', '0') as digits,
		m.whole - z.zeros + e.exponent as magnitude) as d
	where n.number is not null
) as n2
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v5 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v5)) as p3
outer apply (
	select convert(varbinary(400), case
		when d.digits = '' then ' 1'
		when u.negative = 1 then ' 0' + right('000' + convert(varchar(11), 5000 - d.magnitude), 4) + translate(d.digits, '0123456789', '9876543210') + '~'
		else ' 2' + right('000' + convert(varchar(11), 5000 + d.magnitude), 4) + d.digits
	end) as k
	from (select case when p3.type = 2 then convert(varchar(390), p3.value) end as number) as n
	cross apply (select case when left(n.number, 1) = '-' then 1 else 0 end as negative,
		case when left(n.number, 1) = '-' then substring(n.number, 2, 390) else n.number end as number) as u
	cross apply (select left(u.number, charindex('e', u.number + 'e') - 1) as mantissa,
		coalesce(try_convert(int, substring(u.number, charindex('e', u.number + 'e') + 1, 5)), 0) as exponent) as e
	cross apply (select replace(e.mantissa, '.', '') as digits, charindex('.', e.mantissa + '.') - 1 as whole) as m
	cross apply (select patindex('%[^0]%', m.digits + 'x') - 1 as zeros) as z
	cross apply (select replace(rtrim(replace(substring(m.digits, z.zeros + 1, 390), '0', ' ')), ' ', '0') as digits,
		m.whole - z.zeros + e.exponent as magnitude) as d
	where n.number is not null
) as n3
cross apply (
	select case p3.type
		when 1 then case when len(p3.value collate Latin1_General_100_CS_AS_SC + N'.') <= 251 then convert(varbinary(1001), convert(varchar(1001), N'0' + p3.value collate Latin1_General_100_BIN2_UTF8)) else 0xff end
		when 2 then n3.k
		when 3 then case when p3.value = N'true' then 0x41 else 0x40 end
		when 4 then 0xff
		when 5 then 0xff
		else 0x10
	end as k
) as k3
where t.tenant_id = @tenant and t.build = @build and k.id_bytes > 0x
and (p2.type = 2 and n2.k > convert(varbinary(1002), @v4, 2))
order by k3.k, k.id_bytes
) as o on f.keyed = 1
left join manifold_documents.[documents] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = o.id_bytes
order by o.s1, o.id_bytes
option (recompile, loop join, force order, maxdop 2, max_grant_percent = 10);
end
else
select @usable, null, null, null;
