-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @limit int64: 10
-- @v1 mssql.NVarCharMax: total
-- @v2 mssql.VarCharMax: 61
-- @v3 mssql.VarCharMax: 3062
-- @v4 mssql.VarCharMax: 20323530303131
set nocount on;
set lock_timeout 10000;
select t.id_bytes, t.version, convert(nvarchar(max), t.document) as document
from (
select top (@limit) t.id_bytes, case when 0xff in (t.[key status], k1.k) then 1 else 0 end as s0, case when 0xff in (t.[key status], k1.k) then 0xff else t.[key status] end as s1, case when 0xff in (t.[key status], k1.k) then 0xff else k1.k end as s2
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (
	select convert(varbinary(400), case
		when d.digits = '' then ' 1'
		when u.negative = 1 then ' 0' + right('000' + convert(varchar(11), 5000 - d.magnitude), 4) + translate(d.digits, '0123456789', '9876543210') + '~'
		else ' 2' + right('000' + convert(varchar(11), 5000 + d.magnitude), 4) + d.digits
	end) as k
	from (select case when p1.type = 2 then convert(varchar(390), p1.value) end as number) as n
	cross apply (select case when left(n.number, 1) = '-' then 1 else 0 end as negative,
		case when left(n.number, 1) = '-' then substring(n.number, 2, 390) else n.number end as number) as u
	cross apply (select left(u.number, charindex('e', u.number + 'e') - 1) as mantissa,
		coalesce(try_convert(int, substring(u.number, charindex('e', u.number + 'e') + 1, 5)), 0) as exponent) as e
	cross apply (select replace(e.mantissa, '.', '') as digits, charindex('.', e.mantissa + '.') - 1 as whole) as m
	cross apply (select patindex('%[^0]%', m.digits + 'x') - 1 as zeros) as z
	cross apply (select replace(rtrim(replace(substring(m.digits, z.zeros + 1, 390), '0', ' ')), ' ', '0') as digits,
		m.whole - z.zeros + e.exponent as magnitude) as d
	where n.number is not null
) as n1
cross apply (
	select case p1.type
		when 1 then case when len(p1.value collate Latin1_General_100_CS_AS_SC + N'.') <= 251 then convert(varbinary(1001), convert(varchar(1001), N'0' + p1.value collate Latin1_General_100_BIN2_UTF8)) else 0xff end
		when 2 then n1.k
		when 3 then case when p1.value = N'true' then 0x41 else 0x40 end
		when 4 then 0xff
		when 5 then 0xff
		else 0x10
	end as k
) as k1
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and (0xff in (t.[key status], k1.k)
or not 0xff in (t.[key status], k1.k) and (t.[key status] > convert(varbinary(1002), @v3, 2)
or t.[key status] = convert(varbinary(1002), @v3, 2) and k1.k > convert(varbinary(1002), @v4, 2)
or t.[key status] = convert(varbinary(1002), @v3, 2) and k1.k = convert(varbinary(1002), @v4, 2) and t.id_bytes > convert(varbinary(513), @v2, 2)))
order by case when 0xff in (t.[key status], k1.k) then 1 else 0 end, case when 0xff in (t.[key status], k1.k) then 0xff else t.[key status] end, case when 0xff in (t.[key status], k1.k) then 0xff else k1.k end, t.id_bytes
) as o
inner join manifold_documents.[order-summary.12] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = o.id_bytes
order by o.s0, o.s1, o.s2, o.id_bytes
option (recompile, loop join, force order, maxdop 2, max_grant_percent = 10);
