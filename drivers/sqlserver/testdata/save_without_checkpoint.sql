-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @to int64: 0
-- @upserts mssql.NVarCharMax: [{"b":"c3a92031","v":9,"i":"é 1","d":"{\"status\":\"placed\",\"customer\":{\"name\":12.5},\"a\":2}","k0":"30706c61636564","k1":"203235303032313235"}]
-- @deletes mssql.NVarCharMax: [{"b":"676f6e65","v":8}]
set nocount on;
set lock_timeout 10000;
set xact_abort on;
begin transaction;
insert into manifold_documents.[order-summary.12] (tenant_id, build, id_bytes, id, version, [key status], [key customer.name])
select @tenant, @build, 0x, N'', @to, 0x, 0x
where not exists (select * from manifold_documents.[order-summary.12] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x);
if @@rowcount = 1
begin
declare @b table (id_bytes varbinary(512) not null primary key, id nvarchar(512) not null, version bigint not null, document varchar(max) collate Latin1_General_100_BIN2_UTF8 not null, k0 varbinary(1001) not null, k1 varbinary(1001) not null);
insert into @b (id_bytes, id, version, document, k0, k1)
select convert(varbinary(512), j.id_bytes, 2), j.id, j.version, convert(varchar(max), j.document collate Latin1_General_100_BIN2_UTF8), convert(varbinary(1001), j.k0, 2), convert(varbinary(1001), j.k1, 2)
from openjson(@upserts) with (id_bytes varchar(1024) '$.b', id nvarchar(512) '$.i', version bigint '$.v', document nvarchar(max) '$.d', k0 varchar(2002) '$.k0', k1 varchar(2002) '$.k1') as j;
insert into manifold_documents.[order-summary.12] (tenant_id, build, id_bytes, id, version, document, [key status], [key customer.name])
select @tenant, @build, b.id_bytes, b.id, b.version, b.document, b.k0, b.k1 from @b as b
where not exists (select * from manifold_documents.[order-summary.12] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes)
option (loop join, force order);
if @@rowcount < (select count(*) from @b)
update t set version = b.version, document = b.document, [key status] = b.k0, [key customer.name] = b.k1 from @b as b
inner join manifold_documents.[order-summary.12] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes
where t.version < b.version
option (loop join, force order);
delete t
from openjson(@deletes) with (id_bytes varchar(1024) '$.b', version bigint '$.v') as b
inner join manifold_documents.[order-summary.12] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = convert(varbinary(512), b.id_bytes, 2)
where t.version < b.version
option (loop join, force order);
delete t from manifold_documents.[order-summary.12] as t with (rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x;
commit transaction;
select 1;
end
else
begin
rollback transaction;
select 0;
end;

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
set nocount on;
set lock_timeout 10000;
set xact_abort on;
delete t from manifold_documents.[order-summary.12] as t with (rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x;
